"""Which rank of an attempt failed first, and who deals with it: the supervisors or the operator."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from signal import SIGINT

from ddpjob_rank.errors import ConfigError, PeerLostError
from ddpjob_rank.exit_codes import SIGNAL_BASE, ExitCode
from msgspec.structs import replace

from ddpjob_supervisor.watch.blame import ENDED, Observation

from .messages import INCIDENTS_KEPT, NAMED, End, Incident, Past

PEER_LOST = PeerLostError.cause
STALLED = "Stalled"

FRUITLESS = 2
"""After this many attempts in a row that got nowhere there is no further restart in place: new pods may help."""

LOOP = 3
"""This many incidents in a row at which training got no further are a crash loop; only the operator ends a job."""

INTERRUPTED = SIGNAL_BASE + SIGINT
"""The exit code of a rank that was told to stop by SIGINT, and did: by itself, not after the same step as others."""

WELL = frozenset({ExitCode.DONE, ExitCode.SAVED_AND_STOPPED, INTERRUPTED})

MOST_CODE = 255
"""No process ends with a higher exit code."""

LONG_SECONDS = 60.0
"""An attempt of a program that reports no steps got somewhere if it ran for this long."""

KILLED_SECONDS = 30.0
"""A process that still exists this long after SIGKILL waits in the kernel, perhaps forever, or frees much memory."""

Ends = Mapping[int, Sequence[End]]
"""By node number, how its ranks ended."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What is restarted in place, and how often; the rest is left to the operator."""

    restarts: int = 0
    """Within the window."""
    window_seconds: float = 3600.0
    left_codes: frozenset[int] = frozenset()
    """Exit codes of a rank about which only the operator decides."""
    left_causes: frozenset[str] = frozenset()


@dataclass(slots=True)
class Ledger:
    """The past of this gang, to which each attempt adds."""

    limits: Limits
    past: Past = field(default_factory=Past)

    def ran(self, seconds: float, *, failed: bool) -> None:
        """The ranks of an attempt have run for this long; `failed`: until one failed or a node was lost."""
        self.past = replace(self.past, ran=self.past.ran + seconds, failures=self.past.failures + failed)

    def got_somewhere(self) -> None:
        """An attempt that no failure ended got somewhere."""
        self.past = replace(self.past, fruitless=0)

    def gets_no_further(self, incident: Incident) -> bool:
        """Whether this incident is one of a row in which training got no further, by the operator's rule.

        An attempt that ended because a node was lost interrupts such a row.
        """
        row = [one for one in (*self.past.incidents, incident) if one.attempt > incident.attempt - LOOP]
        steps = [one.end.step for one in row if one.end.step is not None]
        return len(steps) == LOOP and max(steps) == steps[0]

    def takes(self, incident: Incident, now: float, *, progressed: bool) -> bool:
        """Whether one more restart in place answers an incident; then it is counted."""
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

    By the operator's rules: a rank that was killed or raised an error of its own comes before one that waited in a
    collective until it gave up, and that one before one that lost a peer. Within one kind the earlier end is first;
    ends at the same moment are a tie. Nodes' clocks differ: `heard` says when each node's first failure was heard of,
    and its own clock only how much later its others came. If ranks have waited, the one that did not come is named,
    where it is known.
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
    tied = any(other[:2] == (kind, moment) for other in failures[1:])
    return incident_of(attempt, node, first, {other for _, _, other, _ in failures}, tied=tied)


WAITED = 1
"""The kind of a rank that waited for others until it gave up."""


def _kind(end: End) -> int:
    return WAITED if end.waited else 2 if end.cause == PEER_LOST else 0


def not_entered(ends: Ends) -> tuple[int, End] | None:
    """The node and the rank for which others waited until they gave up; None if all had begun as many collectives.

    It need not have failed: it may be one that was ended with the others.
    """
    everyone = [(node, end) for node, all_ends in ends.items() for end in all_ends]
    most: dict[str, int] = {}
    for _, end in everyone:
        most |= {group: max(number, most.get(group, number)) for group, number in end.begun.items()}
    for node, end in sorted(everyone, key=lambda one: one[1].rank):
        for group, number in sorted(end.begun.items()):
            if number < most[group]:
                message = (
                    f"it did not enter a collective of group {group.partition(' ')[0]}: it had begun"
                    f" {max(number, 0)} of them, others {most[group]}"
                )
                return node, replace(end, cause=STALLED, message=message, exit_code=ExitCode.STALLED, exception=None)
    return None


def observation_of(rank: int, end: End | None) -> Observation:
    """What a rank that has ended was found doing: one that waited until it gave up did wait."""
    if end is None or not end.waited:
        return Observation(rank, ENDED)
    # Its state is that of a process that waits: it was in no other one for all that time.
    return Observation(rank, "S", where=end.waited, communicates=True, sequences=end.begun)


def incident_of(attempt: int, node: int, end: End, nodes: Iterable[int], *, tied: bool = False) -> Incident:
    """The incident of one node, with which all these nodes failed."""
    others = sorted({*nodes} - {node})
    return Incident(attempt, node, end, tied, len(others), tuple(others[:NAMED]))


def is_well(ends: Sequence[End]) -> bool:
    """Whether a node's ranks have ended by themselves, without a failure."""
    return bool(ends) and all(end.exit_code in WELL and not end.cause for end in ends)


def has_parted(ends: Sequence[End]) -> bool:
    """Whether a node's ranks ended because some were told to stop: these did, or lost a peer that did."""
    none_failed = all(not end.cause or end.cause == PEER_LOST for end in ends)
    return none_failed and any(end.cause or end.exit_code == INTERRUPTED for end in ends)


def is_consequence(incident: Incident) -> bool:
    """Whether it only says that another process went away."""
    return incident.end.cause == PEER_LOST


def is_of_a_stall(end: End) -> bool:
    """Whether a rank has only waited for another one, or lost it."""
    return bool(end.waited) or end.cause == PEER_LOST


def is_explained(incident: Incident) -> bool:
    """Whether the rank itself has said what went wrong, and it was its own failure."""
    return incident.end.exception is not None and not is_consequence(incident)


def left_to_operator(text: str) -> tuple[frozenset[int], frozenset[str]]:
    """Exit codes and causes of `2,40-45,ConfigError`.

    Raises:
        ConfigError: A range in it is not valid.
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
