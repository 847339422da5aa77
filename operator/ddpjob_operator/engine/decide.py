"""The engine: what is there -> what to do and what to say."""

from datetime import datetime

from ddpjob_operator.api import ConditionType, DDPJobStatus

from .decision import Decision
from .policies import POLICIES
from .saying import completed, events
from .snapshot import Snapshot
from .view import View, deadline


def decide(snapshot: Snapshot) -> Decision:
    """Decides everything from what is true now, and does nothing.

    Reads no clock and keeps no memory: the same snapshot gives the same decision, and on a job where nothing is left
    to do the decision is empty.
    """
    view = View(snapshot)
    verdict = next(verdict for policy in POLICIES if (verdict := policy(view)) is not None)
    status = completed(view, verdict.status, verdict.message, blocked=verdict.blocked)
    changed = status != view.status
    return Decision(
        status=status if changed else None,
        actions=verdict.actions,
        events=events(view.status, status) if changed else (),
        wake_at=_next_look(view, verdict.wake_at, status),
        can_wait=changed and not verdict.actions and _is_minor(view.status, status),
    )


def vanished(snapshot: Snapshot) -> bool:
    """Whether the decision is about to rest on a pod's absence alone: that pods were seen, and are not there now."""
    view = View(snapshot)
    return view.created and bool(view.missing)


def _is_minor(before: DDPJobStatus, after: DDPJobStatus) -> bool:
    """Whether it says no more than that all pods exist by now, or how many of them run."""
    same = after.model_copy(update={"message": before.message, "ready": before.ready, "state": before.state})
    return _without_created(same) == _without_created(before)


def _without_created(status: DDPJobStatus) -> DDPJobStatus:
    others = tuple(condition for condition in status.conditions if condition.type is not ConditionType.CREATED)
    return status.model_copy(update={"conditions": others})


def _next_look(view: View, wanted: datetime | None, status: DDPJobStatus) -> datetime | None:
    """The next moment at which time alone changes the decision."""
    if status.finished:
        return None
    times = (wanted, deadline(view.spec, status), view.next_loss)
    return min((time for time in times if time is not None and time > view.now), default=None)
