"""Turns a policy's findings into a status, with conditions and a one-word state, and into events for the changes."""

import math
from dataclasses import dataclass
from typing import Unpack

from ddpjob_operator.api import Condition, ConditionType, DDPJobStatus, DisplayStatus, Progress, State
from ddpjob_operator.api.reasons import Reason
from ddpjob_operator.api.words import counted, duration, intervals

from .changes import StatusChanges, changed
from .decision import Event
from .kstatus import CONDITIONS as KSTATUS
from .kstatus import kstatus
from .snapshot import Waiting
from .view import View

MESSAGE_LENGTH = 1024  # The schema's maxLength. With a longer message, the API server would refuse the whole status.

WARNINGS = frozenset(
    {
        *(ConditionType.BLOCKED, ConditionType.RESTARTING, ConditionType.TRAINING_STALLED),
        ConditionType.AWAITING_FIRST_STEP,
        *(ConditionType.PROGRESS_UNKNOWN, ConditionType.LOSS_NOT_FINITE, ConditionType.STARTED_OVER),
        ConditionType.NEW_CODE_FAILED,
        ConditionType.FAILED,
    }
)

ANNOUNCED = (
    ConditionType.BLOCKED,
    ConditionType.QUEUED,
    ConditionType.CREATED,
    ConditionType.RUNNING,
    ConditionType.RESTARTING,
    ConditionType.TRAINING_STALLED,
    ConditionType.AWAITING_FIRST_STEP,
    ConditionType.PROGRESS_UNKNOWN,
    ConditionType.LOSS_NOT_FINITE,
    ConditionType.STARTED_OVER,
    ConditionType.NEW_CODE_FAILED,
    ConditionType.SUSPENDED,
    ConditionType.COMPLETE,
    ConditionType.FAILED,
)
"""Conditions that cause an event when they become true."""

REPORTED = frozenset(
    {
        *(ConditionType.TRAINING_STALLED, ConditionType.AWAITING_FIRST_STEP),
        *(ConditionType.PROGRESS_UNKNOWN, ConditionType.LOSS_NOT_FINITE),
    }
)
"""Conditions that repeat the report of a program in a pod, or state that the program is silent. Their messages may
change at any time."""


ENDED = {
    ConditionType.COMPLETE: State.SUCCEEDED,
    ConditionType.FAILED: State.FAILED,
    ConditionType.SUSPENDED: State.SUSPENDED,
}
UNDER_WAY = {
    ConditionType.RESTARTING: State.RESTARTING,
    ConditionType.TRAINING_STALLED: State.STALLED,
    ConditionType.RUNNING: State.RUNNING,
    ConditionType.CREATED: State.STARTING,
}
"""The state comes from the first true condition of ENDED or, if the job has not ended, of UNDER_WAY."""

TELLING = (
    *ENDED,
    *(ConditionType.SUCCESS_CRITERIA_MET, ConditionType.FAILURE_TARGET, ConditionType.BLOCKED),
    ConditionType.QUEUED,
    *UNDER_WAY,
)
"""The status takes its reason from the first of these conditions that is true."""


@dataclass(frozen=True, slots=True)
class Say:
    """A condition that is to be set."""

    type: ConditionType
    value: bool
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Something outside the job that keeps the job from continuing, and that somebody else has to fix."""

    reason: str
    """One CamelCase word."""
    message: str


def updated(view: View, *says: Say, **changes: Unpack[StatusChanges]) -> DDPJobStatus:
    """Returns the job's status with only these conditions and fields changed."""
    return changed(with_conditions(view, view.status, *says), **changes)


def completed(
    view: View, status: DDPJobStatus, message: str | None, *, blocked: Obstacle | None, queued: Waiting | None
) -> DDPJobStatus:
    """Returns the status with all fields that are derived from other fields and from the pods.

    The conditions Blocked and Queued are true exactly as long as a policy's verdict contains `blocked` or `queued`.
    """
    if queued is not None or status.is_true(ConditionType.QUEUED):
        why = queued or Waiting(Reason.DEQUEUED, "No longer waiting in a queue")
        say = Say(ConditionType.QUEUED, value=queued is not None, reason=why.reason, message=why.message)
        status = with_conditions(view, status, say)
    if blocked is not None or status.is_true(ConditionType.BLOCKED):
        obstacle = blocked or Obstacle("Unblocked", "No longer blocked")
        say = Say(ConditionType.BLOCKED, value=blocked is not None, reason=obstacle.reason, message=obstacle.message)
        status = with_conditions(view, status, say)
    # Once the end of an attempt is decided, no node counts as ready, even though pods of the attempt still run.
    ready = view.reported_running + view.succeeded if status.attempt == view.status.attempt else 0
    # After the end of the job, the number of ready nodes no longer changes, even if pods are removed.
    ended = view.status.finished
    ready_of_all = status.display.ready if ended else f"{ready}/{status.nodes or view.spec.nodes}"
    status = changed(
        status,
        observed_generation=view.snapshot.job.metadata.generation,
        state=state_of(status),
        reason=_reason(status),
        message=status.message if message is None else message[:MESSAGE_LENGTH],
        ready_nodes=status.ready_nodes if ended else ready,
        display=_displayed(status, ready_of_all),
        **_finished(view, status),
    )
    return with_kstatus(view, status)


def with_kstatus(view: View, status: DDPJobStatus) -> DDPJobStatus:
    """Returns the status with its kstatus condition, if one is true: with the status's own reason and message."""
    others, kind = tuple(known for known in status.conditions if known.type not in KSTATUS), kstatus(status)
    if kind is None:
        return status if len(others) == len(status.conditions) else changed(status, conditions=others)
    known = status.condition(kind)
    if known is not None and view.status.finished:
        return status  # The condition states how the job ended, and stays the same even if the spec changes.
    say = Say(kind, value=True, reason=status.reason or status.state, message=status.message)
    return changed(status, conditions=(*others, _condition(view, say, known)))


def _displayed(status: DDPJobStatus, ready: str) -> DisplayStatus:
    """Returns the columns for `kubectl get`."""
    known, seen = status.display, status.progress
    eta = "" if seen is None or seen.eta_seconds is None else duration(seen.eta_seconds)
    how_far = _how_far(seen)
    if (known.ready, known.progress, known.eta) == (ready, how_far, eta):
        return known
    return known.model_copy(update={"ready": ready, "progress": how_far, "eta": eta})


def _how_far(seen: Progress | None) -> str:
    if seen is None:
        return ""
    if seen.percent is not None:
        return f"{math.floor(seen.percent)}%"
    if seen.step is not None:
        return f"step {seen.step}"
    return "" if seen.steps_since_restart is None else f"{counted(seen.steps_since_restart, 'step')} since restart"


def _finished(view: View, status: DDPJobStatus) -> StatusChanges:
    """Returns the fields of the status that record which nodes have finished. A restart of the gang clears them.

    At the end of a job, some pods are told to stop and are kept. They have not finished, even if they exit with 0.
    """
    if status.bookkeeping.incarnations.default != view.status.bookkeeping.incarnations.default:
        return {"completed_indexes": "", "last_completed_time": None}
    if view.status.finished or view.status.is_true(ConditionType.FAILURE_TARGET):
        return {}
    last = max(view.finish_times, default=None)
    return {"completed_indexes": intervals(view.finished), "last_completed_time": last}


def events(before: DDPJobStatus, after: DDPJobStatus) -> tuple[Event, ...]:
    """Returns an event for each condition that became true, or is true for a new reason, such as a second incident.

    Running implies Created, so if both become true at the same time, only Running causes an event.
    """
    news = {
        condition.type: condition
        for condition in after.conditions
        if condition.type in ANNOUNCED
        and condition.status == "True"
        and _is_news(before.condition(condition.type), condition)
    }
    if ConditionType.RUNNING in news:
        news.pop(ConditionType.CREATED, None)
    return tuple(Event(new.type in WARNINGS, new.type, new.message) for new in news.values())


def with_conditions(view: View, status: DDPJobStatus, *says: Say) -> DDPJobStatus:
    """Returns the status with these conditions changed. A false condition that was never true is left out."""
    conditions = {condition.type: condition for condition in status.conditions}
    for say in says:
        known = conditions.get(say.type)
        if known is not None or say.value:
            conditions[say.type] = _condition(view, say, known)
    return changed(status, conditions=tuple(conditions.values()))


def _is_news(old: Condition | None, new: Condition) -> bool:
    if old is None or old.status != new.status:
        return True
    counts_others = new.type is ConditionType.QUEUED or new.reason == Reason.QUOTA_EXCEEDED
    if counts_others and old.reason == new.reason:
        return False  # The message also states how much other jobs use, which changes often.
    return new.type not in REPORTED and (old.reason, old.message) != (new.reason, new.message)


def _condition(view: View, say: Say, known: Condition | None) -> Condition:
    status, message = "True" if say.value else "False", say.message[:MESSAGE_LENGTH]
    generation, since = view.snapshot.job.metadata.generation, view.now
    if known is not None and known.status == status:
        since = known.last_transition_time
        # This is the usual case. Validating all values again would take longer than everything else here.
        if (known.reason, known.message, known.observed_generation) == (say.reason, message, generation):
            return known
    return Condition(
        type=say.type,
        status=status,
        reason=say.reason,
        message=message,
        last_transition_time=since,
        observed_generation=generation,
    )


def _reason(status: DDPJobStatus) -> str:
    """The reason of the first true condition of TELLING; empty if none is true."""
    return next((known.reason for known in map(status.condition, TELLING) if known and known.status == "True"), "")


def state_of(status: DDPJobStatus) -> State:
    """Returns the job's state in one word, derived from the rest of its status.

    A job that was told to save and stop counts as suspending until its next attempt begins, even if the user resumes
    it earlier.
    """
    ended = next((state for condition, state in ENDED.items() if status.is_true(condition)), None)
    if ended is not None:
        return ended
    if status.is_true(ConditionType.QUEUED) and not status.ending:
        return State.QUEUED
    if status.bookkeeping.suspend_time is not None and not status.ending:
        return State.SUSPENDING
    return next((state for condition, state in UNDER_WAY.items() if status.is_true(condition)), State.PENDING)
