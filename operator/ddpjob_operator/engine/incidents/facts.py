"""The facts of an incident: which rank failed first, how it failed, and which other ranks failed with it.

Failures are ordered by kind, then by time. A rank that was killed or raised an error of its own comes before a rank
that lost a peer, even if it seems to have failed later, because a lost peer has a cause elsewhere and the clocks of
Kubernetes nodes differ. Within one kind the earliest failure is first, and equal times are a tie. If a supervisor
ended its pod because another rank failed, that pod is never the cause.
"""

from dataclasses import dataclass, fields, replace
from datetime import datetime, timedelta

from ddpjob_operator.api import Cause, Incident
from ddpjob_operator.api.contract import ExitCode
from ddpjob_operator.api.status import ALL_RANKS, in_words, is_of_all_ranks
from ddpjob_operator.api.words import counted

CONSEQUENCES_NAMED = 8

SIGNAL_BASE = 128
"""A process that was ended by signal n has the exit code 128+n."""

OF_SUPERVISOR = "its supervisor was "
"""How the message begins if a signal killed a supervisor, and not a rank."""

RESOLUTION = timedelta(seconds=1)
"""A kubelet reports times in whole seconds, so a container that ends in the first second of a job seems to have ended
before the job started."""

TAKEN_AWAY = frozenset(
    {Cause.EVICTED, Cause.PREEMPTED, Cause.NODE_LOST, Cause.POD_DELETED, Cause.STORAGE_EXCEEDED},
)


@dataclass(frozen=True, slots=True)
class Facts:
    """The facts of one rank's failure or, for an incident, of the failure that came first, without a judgement.

    Each field has the same meaning as in `status.incidents`. `pod` is empty if a supervisor reported the failure,
    because supervisors do not name pods.
    """

    time: datetime
    attempt: int
    node: int
    cause: Cause | str
    pod: str = ""
    message: str = ""
    rank: int | None = None
    node_name: str | None = None
    exit_code: int | None = None
    signal: str | None = None
    step: int | None = None
    steps_since_restart: int | None = None
    at_start: bool = False
    tied: bool = False
    consequences: int = 0
    consequence_nodes: tuple[int, ...] = ()

    @classmethod
    def of(cls, incident: Incident) -> "Facts":
        """Returns the facts of an incident from the status."""
        return cls(**{field.name: getattr(incident, field.name) for field in fields(cls)})


def first_of(failures: list[Facts]) -> Facts:
    """Combines failures into one incident: the first failure, with the others as its consequences."""
    ordered = sorted(failures, key=_order)
    first, others = ordered[0], ordered[1:]
    tied = first.tied or any(_order(other)[:2] == _order(first)[:2] for other in others)
    # A rank that was killed cannot report its step. The other ranks were at the same step, or differed by one.
    steps = [failure.step for failure in ordered if failure.step is not None]
    step = first.step if first.step is not None else max(steps, default=None)
    attempt = max(failure.attempt for failure in failures)
    known = replace(first, tied=tied, step=step, attempt=attempt)
    nodes = {*known.consequence_nodes, *(other.node for other in others)} - {known.node}
    return _with_consequences(known, nodes, at_least=known.consequences)


def with_later_reports(known: Facts, later: list[Facts]) -> Facts:
    """Corrects a known incident with later reports from other pods of the failed attempt.

    Pods that stopped only because they were told to are not part of the incident.
    """
    others = [failure for failure in later if failure.node != known.node and failure.cause is not Cause.STOPPED]
    return _amended(known, first_of([known, *others]), others)


def joined(known: Facts, later: list[Facts]) -> Facts:
    """Adds pods that were lost after a known incident, but before the gang started again.

    A lost pod may become the cause, because it explains why other ranks lost a peer.
    """
    return _amended(known, first_of([known, *later]), later)


def _amended(known: Facts, incident: Facts, later: list[Facts]) -> Facts:
    """Returns the corrected incident, with the known incident's attempt and all nodes that failed."""
    nodes = {known.node, *known.consequence_nodes, *(failure.node for failure in later)} - {incident.node}
    same = replace(incident, attempt=known.attempt, at_start=known.at_start)
    return _with_consequences(same, nodes, at_least=known.consequences)


def incident_sentence(incident: Facts, called: str) -> str:
    """An incident in one sentence: which rank failed, why, and how many failed with it. `called`: rank or node."""
    if is_of_all_ranks(incident.cause, incident.exit_code, tied=incident.tied):
        return f"{ALL_RANKS.capitalize()} failed: {incident.cause}: {incident.message}"
    others = f" ({counted(incident.consequences, f'more {called}')} failed with it)" if incident.consequences else ""
    tie = ", one of several at the same moment" if incident.tied else ""
    who = in_words(incident.node, incident.rank).capitalize()
    return f"{who} failed{tie}: {incident.cause}: {incident.message}{others}"


def _with_consequences(first: Facts, nodes: set[int], *, at_least: int = 0) -> Facts:
    """Adds the other nodes that failed: all are counted, but only some named. `at_least` is the reported number."""
    named = tuple(sorted(nodes)[:CONSEQUENCES_NAMED])
    return replace(first, consequences=max(len(nodes), at_least), consequence_nodes=named)


def _order(failure: Facts) -> tuple[int, datetime, int]:
    return _kind(failure), failure.time, failure.node


def _kind(failure: Facts) -> int:
    """Returns a sort key for the kind of a failure. Kinds that cause other failures come first."""
    match failure.cause:
        case Cause.OUT_OF_MEMORY | Cause.STARTED_OVER:
            return 0
        case Cause.STOPPED:
            return 3
        case Cause.PEER_LOST:
            # With this exit code a supervisor reports that it ended because another rank had failed, so this failure
            # cannot be the first.
            return 5 if failure.exit_code == ExitCode.PEER_LOST else 4
        case cause if cause in TAKEN_AWAY or cause == Cause.DEVICE_FAILED:
            return 1
        case _:
            return 1 if failure.signal else 2
