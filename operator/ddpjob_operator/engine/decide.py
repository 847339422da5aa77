"""The engine: what is there -> what to do and what to say, or what it has to know first."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime

from ddpjob_operator.api import ConditionType, DDPJobStatus, State

from .changes import changed
from .conditions import REPORTED, completed, events
from .decision import Decision, DeleteJob, DeletePod, MarkFinished
from .manifests.names import digest_of_name
from .policies import CHAIN, Policy, Verdict
from .policies.verdict import Times, never
from .questions import unmet
from .snapshot import Snapshot
from .supervision import silent_at, with_reports
from .view import View


def decide(snapshot: Snapshot, chain: tuple[Policy, ...] = CHAIN) -> Decision:
    """Decides everything from what is true now, and carries out nothing.

    Reads no clock and keeps no memory: the same snapshot gives the same decision, and when nothing is left to do for
    a job, the decision is empty.
    """
    view = View(snapshot)
    if needs := unmet(view):
        return Decision(needs=needs)
    # Always found: the last policy of the chain has a verdict for every moment.
    place, verdict = next((n, said) for n, policy in enumerate(chain) if (said := policy.decides(view)) is not None)
    for step in AFTERWARDS:
        verdict = step.takes(view, verdict)
    status = verdict.status
    news = status != view.status
    return Decision(
        status=status if news else None,
        actions=verdict.actions,
        events=(*verdict.events, *events(view.status, status)) if news else (),
        wake_at=_next_look(view, verdict, chain[: place + 1]),
        can_wait=news and not verdict.actions and _is_minor(view.status, status),
    )


def _with_reports(view: View, verdict: Verdict) -> Verdict:
    """Adds what supervisors report to the status, whatever was decided."""
    return replace(verdict, status=with_reports(view, verdict.status))


def _completed(view: View, verdict: Verdict) -> Verdict:
    """Adds what follows from the rest of the status, and keeps the fields that only a newer operator knows."""
    status = completed(view, verdict.status, verdict.message, blocked=verdict.blocked)
    same = status == view.status
    return replace(verdict, status=view.status if same else view.status.kept_in(status))


def _without_lost_pods(view: View, verdict: Verdict) -> Verdict:
    """Removes pods whose nodes do not answer from the API, if the operator's administrator permits it.

    A pod that still has to be accounted for stays: one created in its place would have the same name.
    """
    if not view.snapshot.settings.force_delete_lost_pods:
        return verdict
    then = view.with_status(verdict.status)
    present = () if then.winds_down else tuple(then.current.values())
    # Without a grace period, since no kubelet is left to confirm the end.
    lost = (pod for pod in view.overdue if not pod.forced and pod not in present)
    return replace(verdict, actions=(*verdict.actions, *(DeletePod(pod.name, pod.uid, 0) for pod in lost)))


def _marked(view: View, verdict: Verdict) -> Verdict:
    """A job that has finished has its metadata say so, from the write of its last status on.

    Where that was refused, the next look that comes anyway tries again: finished jobs may be thousands.
    """
    snapshot, status = view.snapshot, verdict.status
    if not status.finished or DeleteJob() in verdict.actions:
        return verdict
    mark = f"{State.SUCCEEDED if status.succeeded else State.FAILED} {digest_of_name(snapshot.job)}"
    refused = snapshot.refusal is not None and view.now < snapshot.refusal.retry_at
    # None is not empty: there the status cannot get lost without the rest, and the job is never marked. A copy has
    # the mark of another job.
    if snapshot.mark in {None, mark} or refused:
        return verdict
    return replace(verdict, actions=(*verdict.actions, MarkFinished(mark)))


def _silence_due(view: View) -> Times:
    """When the silence of rank 0's supervisor becomes a condition."""
    if not view.status.finished:
        yield silent_at(view)


def _quiet_due(view: View) -> Times:
    """When rank 0's pod is no longer counted as running."""
    if not view.status.finished:
        yield view.quiet_at
        yield view.missed_at


def _loss_due(view: View) -> Times:
    """When another pod counts as lost."""
    if view.snapshot.settings.force_delete_lost_pods:
        yield view.next_loss


@dataclass(frozen=True, slots=True)
class Step:
    """What is done to every verdict, whichever policy it comes from."""

    takes: Callable[[View, Verdict], Verdict]
    due: Callable[[View], Times]
    """When time alone will change what it does."""


AFTERWARDS = (
    Step(_with_reports, _silence_due),
    Step(_completed, _quiet_due),
    Step(_without_lost_pods, _loss_due),
    Step(_marked, never),
)


def _next_look(view: View, verdict: Verdict, asked: tuple[Policy, ...]) -> datetime | None:
    """The next moment at which time alone changes the decision.

    `asked` are the policies up to the one that decided: those after it are not asked while it has a verdict.
    """
    # By the new status: what it begins, such as a backoff, has an end of its own.
    then = view if verdict.status is view.status else view.with_status(verdict.status)
    dues = (*(policy.due for policy in asked), *(step.due for step in AFTERWARDS))
    times = (verdict.wake_at, *(time for due in dues for time in due(then)))
    return min((time for time in times if time is not None and time > view.now), default=None)


COUNTING = REPORTED | {ConditionType.RUNNING}
"""Conditions whose messages change with each pod or with what a program reports."""

MINOR = (
    *("message", "ready", "ready_nodes", "state", "reason", "supervised", "progress", "checkpoint", "stragglers"),
    *("completed_indexes", "last_completed_time"),
)


def _is_minor(before: DDPJobStatus, after: DDPJobStatus) -> bool:
    """Whether the new status only adds that all pods exist, which of them run or have finished, or the progress.

    Or says the same in other words, if the words are a program's.
    """
    same = after.model_copy(update={name: getattr(before, name) for name in MINOR})
    return _what_matters(same) == _what_matters(before)


def _what_matters(status: DDPJobStatus) -> DDPJobStatus:
    conditions = tuple(
        condition.model_copy(update={"message": ""}) if condition.type in COUNTING else condition
        for condition in status.conditions
        if condition.type is not ConditionType.CREATED
    )
    return changed(status, conditions=conditions)
