"""The engine: what is there -> what to do and what to say."""

from ddpjob_operator.api import ConditionType, DDPJobStatus

from .decision import Action, Decision, DeletePod
from .policies import POLICIES
from .saying import REPORTED, completed, events
from .snapshot import Snapshot
from .supervision import ENDS, members_lost, with_reports
from .timers import next_look
from .view import View

MOST_QUESTIONS = 8
"""Where a rack goes down, a few of its nodes tell the story."""


def decide(snapshot: Snapshot) -> Decision:
    """Decides everything from what is true now, and does nothing.

    Reads no clock and keeps no memory: the same snapshot gives the same decision, and on a job where nothing is left
    to do the decision is empty.
    """
    view = View(snapshot)
    verdict = next(verdict for policy in POLICIES if (verdict := policy(view)) is not None)
    said = with_reports(view, verdict.status)
    status = completed(view, said, verdict.message, blocked=verdict.blocked)
    changed = status != view.status
    return Decision(
        status=status if changed else None,
        actions=(*verdict.actions, *_forced(view, status)),
        events=(*verdict.events, *events(view.status, status)) if changed else (),
        wake_at=next_look(view, verdict.wake_at, status),
        can_wait=changed and not verdict.actions and _is_minor(view.status, status),
    )


def vanished(snapshot: Snapshot) -> bool:
    """Whether the decision is about to rest on a pod's absence alone: that pods were seen, and are not there now."""
    view = View(snapshot)
    return view.created and bool(view.missing)


def nodes_in_question(snapshot: Snapshot) -> frozenset[str]:
    """Nodes whose state would tell why pods are taken away, or not heard any more; at most a few of them.

    A pod that a taint drove away may have saved and ended before anybody looks: its node tells it from a lost one.
    """
    view = View(snapshot)
    if _is_over(view, view.status):
        return frozenset()
    lost = members_lost(view)
    pods = view.current.values()
    taken = {pod.node for pod in pods if pod.deleting and (pod.active or pod.disruption)}
    unheard = {pod.node for pod in pods if pod.active and pod.rank in lost}
    return frozenset(sorted(filter(None, taken | unheard))[:MOST_QUESTIONS])


COUNTING = REPORTED | {ConditionType.RUNNING}
"""Conditions whose words change with each pod or with what a program says."""

MINOR = (
    *("message", "ready", "state", "supervised", "progress", "checkpoint", "stragglers"),
    *("completed_indexes", "last_completed_time"),
)


def _is_minor(before: DDPJobStatus, after: DDPJobStatus) -> bool:
    """Whether it says no more than that all pods exist by now, which run or have finished, or how far training is.

    Or the same in other words, where they are a program's.
    """
    same = after.model_copy(update={name: getattr(before, name) for name in MINOR})
    return _what_matters(same) == _what_matters(before)


def _what_matters(status: DDPJobStatus) -> DDPJobStatus:
    conditions = tuple(
        condition.model_copy(update={"message": ""}) if condition.type in COUNTING else condition
        for condition in status.conditions
        if condition.type is not ConditionType.CREATED
    )
    return status.model_copy(update={"conditions": conditions})


def _forced(view: View, status: DDPJobStatus) -> tuple[Action, ...]:
    """Removes pods whose nodes do not answer from the API, where the operator's administrator permits it.

    None that has still to be accounted for: the one that were made in its place would have its name.
    """
    if not view.snapshot.settings.force_delete_lost_pods:
        return ()
    present = () if _is_over(view, status) else tuple(view.with_status(status).current.values())
    return tuple(DeletePod(pod.name, pod.uid, 0) for pod in view.overdue if not pod.forced and pod not in present)


def _is_over(view: View, status: DDPJobStatus) -> bool:
    """Whether no pod is made any more: pods go because we take them away."""
    return view.spec.suspend or any(status.is_true(end) for end in ENDS)
