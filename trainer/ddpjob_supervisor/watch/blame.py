"""Finds the process that stalls a gang, from an observation of each process. Pure.

In DDP all processes call the same collectives in the same order, and each waits for the last process to arrive. The
table QUESTIONS holds the questions, the strongest evidence first. The first question that is true of some processes
but not of others identifies the culprits; a question that is true of all living processes identifies nobody. For a
process that was not observed, only the last question is true. The usual reason is a slow supervisor, because if the
supervisor were gone, its connection would have been lost by then.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ddpjob_rank.reporting.teller import EVALUATION, TRAINING

STATES = {
    "R": "runs",
    "S": "sleeps",
    "D": "waits for a disk or a device",
    "T": "stopped",
    "t": "stopped by a debugger",
    "Z": "ended",
    "X": "ended",
}
"""The states of a process, as in proc(5)."""

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
    """What one process of a stalled gang was doing when it was examined."""

    rank: int
    state: str | None = None
    """A key of STATES; None if the process was not observed."""
    silent: bool = False
    """Whether the process was asked for its stack and did not answer."""
    where: str | None = None
    """The place in the program, such as `load_batch (train.py:42)`."""
    communicates: bool = False
    """Whether the process waits in a collective."""
    collective: str | None = None
    """The oldest collective that has started but not finished, such as `gloo:all_reduce`."""
    sequences: Mapping[str, int] = field(default_factory=dict)
    """The number of collectives that the process has started, by the name of the group."""
    step: int | None = None
    """The last finished step, if steps are known."""
    counted: bool = False
    """Whether steps are counted for the program, from 1 in each attempt. They cannot be compared with reported
    steps."""
    activity: str | None = None
    raised: str | None = None
    """The exception that the process is handling, such as `ValueError: no shard 7 (train.py:9)`. It has not been
    printed yet, because a `finally` block waits for other ranks."""
    fallen: str | None = None
    """The last thread of the process that ended because of an exception, and the exception."""
    expects: str | None = None
    """Why the process group that the process is creating can never be complete."""
    stack: tuple[str, ...] = ()
    """The innermost frames of the main thread, such as `load_batch (train.py:42)`; the innermost comes first."""


Observations = Mapping[int, Observation]
Culprits = dict[int, str]
"""The processes for which a question is true, by rank, each with a description of what is wrong."""

SHOWN = 3
"""How many processes to show if nothing distinguishes them."""


def blame(
    observations: Mapping[int, Observation], world_size: int, named: Callable[[int], str] = "rank {}".format
) -> tuple[int | None, str]:
    """The rank that the others wait for, or None if no rank stands out; and a sentence that explains this.

    Args:
        observations: By rank. A rank that did not answer is left out.
        world_size: The number of processes in the gang.
        named: Returns the name of a rank for the sentence.
    """
    gang = {rank: observations.get(rank, Observation(rank)) for rank in range(world_size)}
    living = {rank for rank, process in gang.items() if process.state not in OVER}
    for question in QUESTIONS:
        culprits = question(gang)
        if culprits and culprits.keys() != living:
            first = min(culprits)
            if len(culprits) == 1:
                return first, f"{named(first)} did not enter the collective: {culprits[first]}"
            return first, f"{len(culprits)} ranks did not enter the collective; {named(first)}: {culprits[first]}"
    if len(living) == 1:
        (alone,) = living
        return alone, f"{named(alone)} makes no progress: {_standing(gang[alone])}"
    return None, f"the cause was not found: {_nobody(gang, named)}"


def whereabouts(
    observations: Mapping[int, Observation], world_size: int, named: Callable[[int], str] = "rank {}".format
) -> str:
    """Where the ranks are, as a sentence that groups ranks at the same place. The arguments are those of `blame`."""
    places: dict[str, list[int]] = {}
    for rank in range(world_size):
        places.setdefault(place_of(observations.get(rank, Observation(rank))), []).append(rank)
    shown = [
        f"{named(ranks[0])} {place}{f' (and {len(ranks) - 1} more)' if ranks[1:] else ''}"
        for place, ranks in list(places.items())[:SHOWN]
    ]
    return ", ".join(shown) + (", …" if len(places) > SHOWN else "")


def place_of(process: Observation) -> str:
    """What a process is doing, as the rest of a sentence that begins with the process's name."""
    own = f" at {process.where.partition(', in ')[0]}" if process.where else ""
    if process.state is None:
        return "is out of reach"
    if process.state in HELD or process.silent:
        return _standing(process).removeprefix("it ")
    if process.communicates:
        waits = f"in {process.collective}" if process.collective else "for other ranks"
        return f"waits {waits}{own}{f': {process.expects}' if process.expects else ''}"
    return f"{_is(process)}{own}" if own else "cannot be asked"


def _known(gang: Observations) -> Observations:
    """The processes that exist and were observed."""
    return {
        rank: process for rank, process in gang.items() if process.state is not None and process.state not in OVER
    }


def _held(gang: Observations) -> Culprits:
    """The processes that are stopped."""
    return {rank: _standing(process) for rank, process in _known(gang).items() if process.state in HELD}


def _ended(gang: Observations) -> Culprits:
    """The processes that have ended, if all others wait in a collective.

    If not, they may just have finished first.
    """
    known = _known(gang).values()
    if not known or not all(process.communicates for process in known):
        return {}
    return {rank: _standing(process) for rank, process in gang.items() if process.state in OVER}


def _silent(gang: Observations) -> Culprits:
    """The processes that did not answer."""
    return {rank: _standing(process) for rank, process in gang.items() if process.silent}


def _raised(gang: Observations) -> Culprits:
    """The processes that are handling an exception."""
    return {rank: _standing(process) for rank, process in _known(gang).items() if process.raised}


def _late(gang: Observations) -> Culprits:
    """The processes that have finished fewer steps than others."""
    reported = any(process.step is not None and not process.counted for process in gang.values())
    steps = {
        rank: process.step
        for rank, process in _known(gang).items()
        if process.step is not None and not (reported and process.counted)
    }
    last = max(steps.values(), default=0)
    return {
        rank: f"it has finished step {step}, others step {last}, and {_standing(gang[rank]).removeprefix('it ')}"
        for rank, step in steps.items()
        if step < last
    }


def _behind(gang: Observations) -> Culprits:
    """The processes that have started fewer collectives than other processes of the same group."""
    last: Counter[str] = Counter()
    for process in gang.values():
        last |= Counter(process.sequences)
    return {
        rank: _standing(process)
        for rank, process in gang.items()
        if any(sequence < last[group] for group, sequence in process.sequences.items())
    }


def _elsewhere(gang: Observations) -> Culprits:
    """The processes that do not wait in a collective."""
    return {rank: _standing(process) for rank, process in _known(gang).items() if not process.communicates}


def _in_another(gang: Observations) -> Culprits:
    """The processes that wait in a different collective from most processes."""
    known = _known(gang)
    (most, count), *others = Counter(process.collective for process in known.values()).most_common() or [(None, 0)]
    if not others or others[0][1] == count:
        return {}
    return {
        rank: f"{_standing(process)}, others in {most}"
        for rank, process in known.items()
        if process.collective is not None and most is not None and process.collective != most
    }


def _unknown(gang: Observations) -> Culprits:
    """The processes that were not observed."""
    return {rank: _standing(process) for rank, process in gang.items() if process.state is None}


QUESTIONS: tuple[Callable[[Observations], Culprits], ...] = (
    # A program may train while it handles an exception, so being late or behind is stronger evidence.
    *(_held, _ended, _silent, _late, _behind, _raised, _elsewhere, _in_another),
    _unknown,
)


def _nobody(gang: Observations, named: Callable[[int], str]) -> str:
    """The explanation if no question distinguishes the processes."""
    collectives = {process.collective for process in gang.values()}
    if all(process.communicates and process.state not in HELD for process in gang.values()) and len(collectives) == 1:
        name = f" ({gang[0].collective})" if gang[0].collective else ""
        places = Counter(process.where.partition(", in ")[0] for process in gang.values() if process.where)
        at = f" at {', '.join(place for place, _ in places.most_common(SHOWN))}" if places else ""
        return f"all ranks wait in the same collective{name}{at}: check the network"
    standing = {rank: _standing(process) for rank, process in gang.items()}
    if len(set(standing.values())) == 1:
        return f"no rank makes progress; for every rank: {standing[0]}"
    shown = "; ".join(f"{named(rank)}: {state}" for rank, state in list(standing.items())[:SHOWN])
    apart = all(process.communicates and process.collective for process in gang.values()) and len(collectives) > 1
    what = "the ranks wait in different collectives" if apart else "no rank makes progress"
    return f"{what}; {shown}" + ("; …" if len(gang) > SHOWN else "")


def _standing(process: Observation) -> str:
    """What is wrong with a process. If nothing is known to be wrong, where it is."""
    if process.state is None:
        return "its supervisor does not answer"
    if process.state in HELD:
        return HELD[process.state]
    state = f"(state {process.state}: {STATES.get(process.state, 'unknown')})"
    if process.silent:
        return f"it does not answer {state}"
    handling = f", while it handles {process.raised}" if process.raised else ""
    fallen = "".join(f"; {more}" for more in (process.expects, process.fallen) if more)
    if process.communicates and process.collective:
        own = f" at {process.where.partition(', in ')[0]}" if process.where else ""
        return f"it waits in {process.collective}{own}{handling}{fallen}"
    if process.where is None:
        return f"what it is doing is unknown {state}{handling}{fallen}"
    activity = f", {process.activity}" if process.activity not in {None, TRAINING, EVALUATION} else ""
    in_kernel = f" {state}" if process.state == "D" else ""
    return f"it {_is(process)} in {process.where}{activity}{in_kernel}{handling}{fallen}"


def _is(process: Observation) -> str:
    return "is evaluating" if process.activity == EVALUATION else "is"
