"""The facts of an incident: which rank failed first, how, and which others failed with it.

The kind of a failure counts before its time: a rank that was killed or raised an error of its own comes before a rank
that lost a peer, whatever the times say, because a lost peer has a cause elsewhere, and the clocks of Kubernetes
nodes differ. Within one kind the earlier failure is first; equal times are called a tie. A pod that its supervisor
ended because another one failed is never the cause.
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

RESOLUTION = timedelta(seconds=1)
"""A kubelet reports times in whole seconds: a container that ends in the first second of a job seems to end before
it."""

TAKEN_AWAY = frozenset(
    {Cause.EVICTED, Cause.PREEMPTED, Cause.NODE_LOST, Cause.POD_DELETED, Cause.STORAGE_EXCEEDED},
)


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of one rank's failure or, for an incident, of the first rank's failure. Holds no judgement.

    Each field means the same as in `status.incidents`. Supervisors do not name pods: `pod` is then empty.
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
        """The facts of an incident in the status."""
        return cls(**{field.name: getattr(incident, field.name) for field in fields(cls)})


def first_of(failures: list[Facts]) -> Facts:
    """The incident that these failures make up: the first of them, with the others as its consequences."""
    ordered = sorted(failures, key=_order)
    first, others = ordered[0], ordered[1:]
    tied = first.tied or any(_order(other)[:2] == _order(first)[:2] for other in others)
    # A rank that was killed cannot report how far it got. All ranks were at the same step, or one behind.
    steps = [failure.step for failure in ordered if failure.step is not None]
    step = first.step if first.step is not None else max(steps, default=None)
    attempt = max(failure.attempt for failure in failures)
    known = replace(first, tied=tied, step=step, attempt=attempt)
    nodes = {*known.consequence_nodes, *(other.node for other in others)} - {known.node}
    return _with_consequences(known, nodes, at_least=known.consequences)


def with_later_reports(known: Facts, later: list[Facts]) -> Facts:
    """A known incident, corrected by what other pods of its attempt have reported since.

    Pods that stopped only because they were told to are not part of it.
    """
    others = [failure for failure in later if failure.node != known.node and failure.cause is not Cause.STOPPED]
    return _amended(known, first_of([known, *others]), others)


def joined(known: Facts, later: list[Facts]) -> Facts:
    """A known incident, together with pods that were lost after it, before the gang has started again.

    A lost pod explains why other ranks lost a peer, and so may become the cause.
    """
    return _amended(known, first_of([known, *later]), later)


def _amended(known: Facts, incident: Facts, later: list[Facts]) -> Facts:
    """The corrected incident. It keeps the attempt that it ended, and the nodes that are known to have failed."""
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
    """The incident with its consequences, of which only some are named. `at_least`: the number that reports give."""
    named = tuple(sorted(nodes)[:CONSEQUENCES_NAMED])
    return replace(first, consequences=max(len(nodes), at_least), consequence_nodes=named)


def _order(failure: Facts) -> tuple[int, datetime, int]:
    return _kind(failure), failure.time, failure.node


def _kind(failure: Facts) -> int:
    """The kind of a failure, for sorting: kinds that cause others come first."""
    match failure.cause:
        case Cause.OUT_OF_MEMORY | Cause.STARTED_OVER:
            return 0
        case Cause.STOPPED:
            return 3
        case Cause.PEER_LOST:
            # With this exit code the supervisor reports that it ended because another rank had failed. So this
            # failure is never the first.
            return 5 if failure.exit_code == ExitCode.PEER_LOST else 4
        case cause if cause in TAKEN_AWAY or cause == Cause.DEVICE_FAILED:
            return 1
        case _:
            return 1 if failure.signal else 2
