"""Which process stalls a gang, by what each of its processes was found doing. Pure.

In DDP all processes call the same collectives in the same order, and each waits for the last one to come. The
questions are in a table, the strongest evidence first. The first one that is true of some processes and not of others
names them; one that is true of all that live says nothing. For a process about which nothing is known, only the last
one is true: usually its supervisor is slow, since one that is gone would have lost its connection by then.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

STATES = {
    "R": "runs",
    "S": "sleeps",
    "D": "waits for a disk or a device",
    "T": "stopped",
    "t": "stopped by a debugger",
    "Z": "ended",
    "X": "ended",
}
"""States of a process, as in proc(5)."""

ENDED = "X"
HELD = {
    "T": "it is stopped (state T)",
    "t": "a debugger has stopped it (state t)",
    "Z": "it has ended",
    ENDED: "it has ended",
}
OVER = frozenset({"Z", ENDED})


@dataclass(frozen=True, slots=True)
class Observation:
    """What one process was found doing."""

    rank: int
    state: str | None = None
    """One of STATES; None: nothing is known."""
    silent: bool = False
    """Whether it was asked for its stack and did not answer."""
    where: str | None = None
    """The place in the program: `load_batch (train.py:42)`."""
    communicates: bool = False
    """Whether it waits in a collective."""
    collective: str | None = None
    """The oldest that it has started and not finished: `gloo:all_reduce`."""
    sequences: Mapping[str, int] = field(default_factory=dict)
    """How many collectives it has started, by the name of the group."""
    step: int | None = None
    """The last finished one, if it reports steps."""
    counted: bool = False
    """Whether these are counted for it, from 1 in each attempt: not comparable with what others report."""
    activity: str | None = None


Observations = Mapping[int, Observation]
Kept = dict[int, str]
"""What is wrong with each process to which a question applies."""

SHOWN = 3
"""How many processes are shown if nothing distinguishes them."""


def blame(
    observations: Mapping[int, Observation], world_size: int, named: Callable[[int], str] = "rank {}".format
) -> tuple[int | None, str]:
    """The rank that the others wait for, or None if it is no particular one; and a sentence for people.

    Args:
        observations: By rank; those left out did not answer.
        world_size: How many processes the gang has.
        named: What the sentence calls a rank.
    """
    gang = {rank: observations.get(rank, Observation(rank)) for rank in range(world_size)}
    lives = {rank for rank, one in gang.items() if one.state not in OVER}
    for question in QUESTIONS:
        kept = question(gang)
        if kept and kept.keys() != lives:
            first = min(kept)
            if len(kept) == 1:
                return first, f"{named(first)} did not enter the collective: {kept[first]}"
            return first, f"{len(kept)} ranks did not enter the collective; {named(first)}: {kept[first]}"
    if len(lives) == 1:
        (alone,) = lives
        return alone, f"{named(alone)} does not go on: {_standing(gang[alone])}"
    return None, _nobody(gang, named)


def _known(gang: Observations) -> Observations:
    """Those that exist and were examined."""
    return {rank: one for rank, one in gang.items() if one.state is not None and one.state not in OVER}


def _held(gang: Observations) -> Kept:
    return {rank: _standing(one) for rank, one in _known(gang).items() if one.state in HELD}


def _ended(gang: Observations) -> Kept:
    """Those that have ended, if all others wait for them: otherwise they were finished, and others are still busy."""
    known = _known(gang).values()
    if not known or not all(one.communicates for one in known):
        return {}
    return {rank: _standing(one) for rank, one in gang.items() if one.state in OVER}


def _silent(gang: Observations) -> Kept:
    return {rank: _standing(one) for rank, one in gang.items() if one.silent}


def _late(gang: Observations) -> Kept:
    """Those that report steps, and have finished fewer than others."""
    tell = any(one.step is not None and not one.counted for one in gang.values())
    steps = {
        rank: one.step for rank, one in _known(gang).items() if one.step is not None and not (tell and one.counted)
    }
    last = max(steps.values(), default=0)
    return {
        rank: f"it has finished step {step}, others step {last}, and {_standing(gang[rank]).removeprefix('it ')}"
        for rank, step in steps.items()
        if step < last
    }


def _behind(gang: Observations) -> Kept:
    """Those that have started fewer collectives than others of the same group."""
    last: Counter[str] = Counter()
    for one in gang.values():
        last |= Counter(one.sequences)
    return {
        rank: _standing(one)
        for rank, one in gang.items()
        if any(sequence < last[group] for group, sequence in one.sequences.items())
    }


def _elsewhere(gang: Observations) -> Kept:
    return {rank: _standing(one) for rank, one in _known(gang).items() if not one.communicates}


def _in_another(gang: Observations) -> Kept:
    """Those that wait in a different collective than most."""
    known = _known(gang)
    (most, count), *others = Counter(one.collective for one in known.values()).most_common() or [(None, 0)]
    if not others or others[0][1] == count:
        return {}
    return {
        rank: f"it waits in {one.collective}, others in {most}"
        for rank, one in known.items()
        if one.collective is not None and most is not None and one.collective != most
    }


def _unknown(gang: Observations) -> Kept:
    """Those that nothing is known of, where all others wait."""
    return {rank: _standing(one) for rank, one in gang.items() if one.state is None}


QUESTIONS: tuple[Callable[[Observations], Kept], ...] = (
    *(_held, _ended, _silent, _late, _behind, _elsewhere, _in_another),
    _unknown,
)


def _nobody(gang: Observations, named: Callable[[int], str]) -> str:
    """What can be said if nothing distinguishes the processes."""
    collectives = {one.collective for one in gang.values()}
    if all(one.communicates and one.state not in HELD for one in gang.values()) and len(collectives) == 1:
        name = f" ({gang[0].collective})" if gang[0].collective else ""
        return f"all ranks wait in the same collective{name}: look at the network"
    standing = {rank: _standing(one) for rank, one in gang.items()}
    if len(set(standing.values())) == 1:
        return f"no rank goes on; for every rank: {standing[0]}"
    shown = "; ".join(f"{named(rank)}: {said}" for rank, said in list(standing.items())[:SHOWN])
    return f"no rank goes on; {shown}" + ("; …" if len(gang) > SHOWN else "")


def _standing(one: Observation) -> str:
    """What is wrong with a process, or else where it is."""
    if one.state is None:
        return "its supervisor does not answer"
    if one.state in HELD:
        return HELD[one.state]
    state = f"(state {one.state}: {STATES.get(one.state, 'unknown')})"
    if one.silent:
        return f"it does not answer {state}"
    if one.communicates and one.collective:
        return f"it waits in {one.collective}"
    if one.where is None:
        return f"nothing shows what it does {state}"
    activity = f", {one.activity}" if one.activity not in {None, "training"} else ""
    return f"it is in {one.where}{activity}" + (f" {state}" if one.state == "D" else "")
