"""Incidents: which rank failed first. The rest are consequences.

"First" is told by the kind of failure before the clock: a rank that was killed or raised an error of its own comes
before one that lost a peer, whatever the times say, since a peer is lost because of something else and node clocks
differ. Within one kind the earlier one is first; equal moments are called a tie. A pod that its supervisor ended over
another one's failure is nobody's cause.
"""

from datetime import datetime, timedelta

from ddpjob_operator.api import Cause, ConditionType, DDPJobStatus, Incident, RestartAction
from ddpjob_operator.api.contract import ExitCode
from ddpjob_operator.api.status import HISTORY, Progress
from ddpjob_operator.api.words import counted
from ddpjob_operator.engine.changes import StatusChanges, amended

CONSEQUENCES_NAMED = 8

LOOP = 3
"""So many failures in a row that get no further are a crash loop."""

SIGNAL_BASE = 128
"""A process that signal n ended has the exit code 128+n."""

RESOLUTION = timedelta(seconds=1)
"""A kubelet tells times in whole seconds: what ends in the first second of a job seems to end before it."""

TAKEN_AWAY = frozenset(
    {Cause.EVICTED, Cause.PREEMPTED, Cause.NODE_LOST, Cause.POD_DELETED, Cause.STORAGE_EXCEEDED},
)


def first_of(failures: list[Incident]) -> Incident:
    """The incident that these failures make up: the first of them, with the others as its consequences."""
    ordered = sorted(failures, key=_order)
    first, others = ordered[0], ordered[1:]
    tied = first.tied or any(_order(other)[:2] == _order(first)[:2] for other in others)
    steps = [failure.step for failure in ordered if failure.step is not None]
    step = first.step if first.step is not None else max(steps, default=None)
    attempt = max(failure.attempt for failure in failures)
    known = amended(first, tied=tied, step=step, attempt=attempt)
    ranks = {*known.consequence_ranks, *(other.rank for other in others)} - {known.rank}
    return _with_consequences(known, ranks, at_least=known.consequences)


def enlightened(known: Incident, later: list[Incident]) -> Incident:
    """A known incident in the light of what other pods of its attempt have said since.

    Those that only stopped when they were told to are not part of it.
    """
    others = [failure for failure in later if failure.rank != known.rank and failure.cause is not Cause.STOPPED]
    incident = _in_place_of(known, first_of([known, *others]))
    ranks = {known.rank, *known.consequence_ranks, *(failure.rank for failure in others)} - {incident.rank}
    return _with_consequences(incident, ranks, at_least=known.consequences)


def joined(known: Incident, later: list[Incident]) -> Incident:
    """A known incident with pods that were lost after it, in a gang that has not yet started again.

    That a pod was lost tells more of its rank than that its peers lost it.
    """
    incident = _in_place_of(known, first_of([known, *later]))
    ranks = {known.rank, *known.consequence_ranks, *(failure.rank for failure in later)} - {incident.rank}
    return _with_consequences(incident, ranks, at_least=known.consequences)


def _in_place_of(known: Incident, incident: Incident) -> Incident:
    """What is true of both, since they are one: which attempt it ended, and when."""
    return amended(incident, attempt=known.attempt, at_start=known.at_start)


def told(incident: Incident) -> str:
    """An incident in one sentence: which rank, why, and how many went with it."""
    others = f" ({counted(incident.consequences, 'more rank')} failed with it)" if incident.consequences else ""
    tie = ", one of several at the same moment" if incident.tied else ""
    return f"{incident.who.capitalize()} failed{tie}: {incident.cause}: {incident.message}{others}"


def culprit(status: DDPJobStatus) -> str:
    """The name of the pod over which a gang ends; empty where none does, or where the pod was taken away.

    It may still run, and is not to take its log with it.
    """
    known, said = status.last_failure, status.condition(ConditionType.RESTARTING)
    if known is None or known.cause in TAKEN_AWAY:
        return ""
    starts_again = said is not None and (said.status, said.reason) == ("True", known.cause)
    return known.pod if starts_again or status.is_true(ConditionType.FAILURE_TARGET) else ""


def remembered(status: DDPJobStatus, incident: Incident) -> StatusChanges:
    """The fields of the status with a new incident."""
    return {"last_failure": incident, "history": (incident, *status.history)[:HISTORY]}


def corrected(status: DDPJobStatus, incident: Incident) -> StatusChanges:
    """The fields of the status where more is known of the last incident."""
    return {"last_failure": incident, "history": (incident, *status.history[1:])}


def is_crash_loop(status: DDPJobStatus, incident: Incident, progress: Progress | None = None) -> bool:
    """Whether this counted failure is one of several in a row none of which got further than the first of them.

    Only attempts that say how far they got can tell; and after a suspension all begins anew, since the cause may have
    been mended. Training that was seen to go on since, and further, is no loop: incidents may be heard of late.
    """
    since = status.start_time
    row = [incident, *status.history][:LOOP]
    counted = [
        failure.step
        for failure in row
        if failure.action is RestartAction.RESTART and (since is None or failure.time > since - RESOLUTION)
    ]
    steps = [step for step in counted if step is not None]
    return len(steps) == LOOP and max(steps) == steps[-1] and not went_further(progress, steps[-1], incident.time)


def got_further(last: Incident, incident: Incident, progress: Progress | None = None) -> bool:
    """Whether training came further than at the incident before, where both say how far, or has since then."""
    if last.step is None:
        return False
    by_then = incident.step is not None and incident.step > last.step
    return by_then or went_further(progress, last.step, last.time)


def went_further(progress: Progress | None, step: int, since: datetime) -> bool:
    """Whether a step beyond this one has been finished since that moment."""
    if progress is None or progress.step is None or progress.last_step_time is None:
        return False
    return progress.last_step_time > since and progress.step > step


def _with_consequences(first: Incident, ranks: set[int], *, at_least: int = 0) -> Incident:
    """The incident with its consequences. Only some of them have names, so their number may be known to be larger."""
    named = tuple(sorted(ranks)[:CONSEQUENCES_NAMED])
    return amended(first, consequences=max(len(ranks), at_least), consequence_ranks=named)


def _order(failure: Incident) -> tuple[int, datetime, int]:
    return _kind(failure), failure.time, failure.rank


def _kind(failure: Incident) -> int:
    """Kinds of failure, those that cause others first."""
    match failure.cause:
        case Cause.OUT_OF_MEMORY:
            return 0
        case Cause.STOPPED:
            return 3
        case Cause.PEER_LOST:
            return 5 if failure.exit_code == ExitCode.PEER_LOST else 4
        case cause if cause in TAKEN_AWAY:
            return 1
        case _:
            return 1 if failure.signal else 2
