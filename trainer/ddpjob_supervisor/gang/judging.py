"""Which rank of an attempt failed first, and who deals with it: the supervisors or the operator."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter, itemgetter
from signal import SIGINT

from ddpjob_rank.errors import (
    ConfigError,
    DeviceFailedError,
    PeerLostError,
    StorageUnavailableError,
    TrainerError,
)
from ddpjob_rank.exit_codes import SIGNAL_BASE, ExitCode
from msgspec.structs import replace

from ddpjob_supervisor.preflight.findings import PreflightError
from ddpjob_supervisor.watch.blame import ENDED, Observation

from .messages import INCIDENTS_KEPT, NAMED, STALLED, End, Incident, Past

PEER_LOST = PeerLostError.cause

NOT_OF_THE_CODE = frozenset({DeviceFailedError.cause, PreflightError.cause, StorageUnavailableError.cause})
"""Causes that say nothing about new code: the machine or the store has failed. The operator has the same, and those
of pods."""

FRUITLESS = 2
"""How many consecutive attempts may make no progress. After that, the gang no longer restarts in place, because new
pods may help."""

LOOP = 3
"""How many consecutive incidents without progress between them are a crash loop. Only the operator ends a job."""

INTERRUPTED = SIGNAL_BASE + SIGINT
"""The exit code of a rank that SIGINT stopped immediately, not after the same step as the other ranks."""

WELL = frozenset({ExitCode.DONE, ExitCode.SAVED_AND_STOPPED, INTERRUPTED})

MOST_CODE = 255
"""The highest exit code that a process can have."""

LONG_SECONDS = 60.0
"""An attempt of a program that reports no steps counts as progress if it ran for this long."""

KILLED_SECONDS = 30.0
"""How long to wait for killed ranks to end. A process that still exists after that hangs in the kernel, maybe
forever."""

Ends = Mapping[int, Sequence[End]]
"""How the ranks of each node ended, by node number."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Which incidents lead to a restart in place, and how often. All others are left to the operator."""

    restarts: int = 0
    """How many restarts in place are allowed within the window."""
    window_seconds: float = 3600.0
    left_codes: frozenset[int] = frozenset()
    """A rank's exit codes that are left to the operator."""
    left_causes: frozenset[str] = frozenset()
    """Causes of a failure that are left to the operator."""


@dataclass(slots=True)
class Ledger:
    """Keeps the gang's history, from which it decides whether another restart in place is allowed."""

    limits: Limits
    past: Past = field(default_factory=Past)

    def ran(self, seconds: float, *, failed: bool) -> None:
        """Adds the running time of an attempt, and whether it ended because a rank failed or a node was lost."""
        self.past = replace(self.past, ran=self.past.ran + seconds, failures=self.past.failures + failed)

    def got_somewhere(self) -> None:
        """Records that an attempt made progress, and ended without a failure."""
        self.past = replace(self.past, fruitless=0)

    def gets_no_further(self, incident: Incident) -> bool:
        """Whether this incident and the ones before it are a crash loop, by the operator's rule.

        They are if each of the last LOOP attempts ended with an incident, and none of these attempts got further than
        the first of them or, if steps are only counted, each raised the same error after as many steps. An attempt
        that ended because a node was lost leaves no incident here, and so interrupts a loop.
        """
        recent = [past for past in (*self.past.incidents, incident) if past.attempt > incident.attempt - LOOP]
        steps = [past.end.step for past in recent if past.end.step is not None]
        alike = {(past.end.counted_steps, past.end.cause, past.end.exception, past.end.message) for past in recent}
        again = len(recent) == LOOP and len(alike) == 1 and incident.end.counted_steps is not None
        return (again and is_explained(incident)) or (len(steps) == LOOP and max(steps) == steps[0])

    def takes(self, incident: Incident, now: float, *, progressed: bool) -> bool:
        """Returns whether to answer an incident with a restart in place, which it then counts."""
        past, limits = self.past, self.limits
        past = replace(past, fruitless=0 if progressed else past.fruitless + 1)
        recent = tuple(time for time in past.recent if now - time < limits.window_seconds)
        left = incident.end.exit_code in limits.left_codes or incident.end.cause in limits.left_causes
        if left or len(recent) >= limits.restarts or past.fruitless >= FRUITLESS:
            self.past = past
            return False
        incidents = (*past.incidents, incident)[-INCIDENTS_KEPT:]
        self.past = replace(past, incidents=incidents, restarts=past.restarts + 1, recent=(*recent, now))
        return True


def first_of(attempt: int, ends: Ends, heard: Mapping[int, float]) -> Incident | None:
    """The incident that ended an attempt; None if no rank failed.

    The operator has the same rules. A rank that was killed or raised its own error comes first, then a rank that
    timed out in a collective, then a rank that lost a peer. Among ranks of one kind, the rank that ended earliest
    comes first; ranks that ended at the same moment are tied. Because the clocks of nodes differ, the time of a
    node's first failure is the time in `heard`, when the coordinator received it; the node's own clock is used only
    for how much later the node's other failures were. If ranks timed out in a collective, the incident names the rank
    that did not enter it, if that rank is known.
    """
    failures = []
    for node, all_ends in ends.items():
        failed = [end for end in all_ends if end.cause]
        began = min((end.time for end in failed), default=0.0)
        failures += [(_kind(end), heard[node] + (end.time - began), node, end) for end in failed]
    if not failures:
        return None
    failures.sort(key=itemgetter(0, 1, 2))
    kind, moment, node, first = failures[0]
    if kind == WAITED and (missed := not_entered(ends)):
        return incident_of(attempt, *missed, {other for _, _, other, _ in failures})
    if kind == LOST:
        first = _as_left(first, ends)
    tied = any(other[:2] == (kind, moment) for other in failures[1:])
    return incident_of(attempt, node, first, {other for _, _, other, _ in failures}, tied=tied)


WAITED, LOST = 1, 2
"""The kinds of failures in which a rank timed out in a collective, and in which it lost a peer."""


def _kind(end: End) -> int:
    """How indirectly the failure follows from the cause: 0 for a rank's own failure, then WAITED, then LOST."""
    return WAITED if end.waited else LOST if end.cause == PEER_LOST else 0


def _as_left(lost: End, ends: Ends) -> End:
    """Blames the program for a lost peer if another rank of the node had finished before; otherwise returns `lost`.

    Ranks of other nodes are left out, because their clocks differ.
    """
    own = next(all_ends for all_ends in ends.values() if lost in all_ends)
    finished = [end for end in own if end.exit_code == ExitCode.DONE and not end.cause and end.time <= lost.time]
    if not finished:
        return lost
    last = max(finished, key=attrgetter("time"))
    message = (
        f"rank {last.rank} had already ended with exit code 0, and this rank still waited for it: all ranks must"
        " enter the same collectives, so give them the same number of batches, or let the model join()"
    )
    return replace(lost, cause=TrainerError.cause, message=message, exception=None)


def not_entered(ends: Ends) -> tuple[int, End] | None:
    """The node and the end of a rank that did not enter a collective in which others timed out.

    The rank itself need not have failed: it may have been stopped with the others. None if all ranks had begun the
    same number of collectives.
    """
    everyone = [(node, end) for node, all_ends in ends.items() for end in all_ends]
    most: dict[str, int] = {}
    for _, end in everyone:
        most |= {group: max(number, most.get(group, number)) for group, number in end.begun.items()}
    for node, end in sorted(everyone, key=lambda pair: pair[1].rank):
        for group, number in sorted(end.begun.items()):
            if number < most[group]:
                message = (
                    f"it did not enter a collective of group {group.partition(' ')[0]}: it had begun"
                    f" {max(number, 0)} of them, other ranks {most[group]}"
                )
                return node, replace(end, cause=STALLED, message=message, exit_code=ExitCode.STALLED, exception=None)
    return None


def observation_of(rank: int, end: End | None) -> Observation:
    """The observation of a rank that has ended. If it timed out in a collective, it counts as still waiting there."""
    if end is None or not end.waited:
        return Observation(rank, ENDED)
    # S is the state of a waiting process: the rank was waiting until its timeout.
    return Observation(rank, "S", where=end.waited, communicates=True, sequences=end.begun)


def incident_of(attempt: int, node: int, end: End, nodes: Iterable[int], *, tied: bool = False) -> Incident:
    """An incident that began with the end of a rank on `node`; `nodes` are all nodes that failed."""
    others = sorted({*nodes} - {node})
    return Incident(attempt, node, end, tied, len(others), tuple(others[:NAMED]))


def is_well(ends: Sequence[End]) -> bool:
    """Whether a node's ranks have all ended without a failure, and without being killed."""
    return bool(ends) and all(end.exit_code in WELL and not end.cause for end in ends)


def has_parted(ends: Sequence[End]) -> bool:
    """Whether a node's ranks ended because ranks were told to stop: they stopped, or lost a peer that had stopped."""
    none_failed = all(not end.cause or end.cause == PEER_LOST for end in ends)
    return none_failed and any(end.cause or end.exit_code == INTERRUPTED for end in ends)


def is_consequence(incident: Incident) -> bool:
    """Whether the failure only shows that another process has disappeared."""
    return incident.end.cause == PEER_LOST


def is_of_a_stall(end: End) -> bool:
    """Whether a rank's end is a consequence of a stall: it timed out in a collective, or lost a peer."""
    return bool(end.waited) or end.cause == PEER_LOST


def is_explained(incident: Incident) -> bool:
    """Whether the rank reported an exception of its own, and not just that it lost a peer."""
    return incident.end.exception is not None and not is_consequence(incident)


def left_to_operator(text: str) -> tuple[frozenset[int], frozenset[str]]:
    """Parses exit codes and causes, such as `2,40-45,ConfigError`.

    Raises:
        ConfigError: An item is neither an exit code, a range of them, nor a cause.
    """
    codes: set[int] = set()
    causes: set[str] = set()
    for word in filter(None, (part.strip() for part in text.split(","))):
        first, dash, last = word.partition("-")
        last = last if dash else first
        if first.isdecimal() and last.isdecimal() and int(first) <= int(last) <= MOST_CODE:
            codes.update(range(int(first), int(last) + 1))
        elif word[0].isalpha():
            causes.add(word)
        else:
            raise ConfigError(
                f"DDPJOB_LEAVE_TO_OPERATOR has {word!r}: it must be exit codes, ranges of them, or causes"
            )
    return frozenset(codes), frozenset(causes)
