"""Policies for the end of a job, and for the pods that it leaves behind."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from typing import Unpack

from ddpjob_operator.api import (
    Cause,
    CleanPodPolicy,
    Condition,
    ConditionType,
    DDPJobSpec,
    DDPJobStatus,
    RestartAction,
    State,
    SuccessPolicy,
)
from ddpjob_operator.api.reasons import FROM_OUTSIDE, Reason
from ddpjob_operator.api.words import counted
from ddpjob_operator.engine.changes import StatusChanges
from ddpjob_operator.engine.conditions import Say, updated, with_conditions
from ddpjob_operator.engine.decision import Action, DeleteJob
from ddpjob_operator.engine.incidents.facts import Facts, incident_sentence
from ddpjob_operator.engine.incidents.ledger import Entry, culprit, excused
from ddpjob_operator.engine.manifests.names import digest_of_name
from ddpjob_operator.engine.snapshot import Pod
from ddpjob_operator.engine.view import View, after

from .hindsight import amended_last_incident, hindsight
from .obstacles import awaited
from .steps import budget, delete, restarting, short_grace, start_again, stop, stops_due, wait_after
from .verdict import Times, Verdict

GENTLE = FROM_OUTSIDE | {Reason.RANK_ZERO_SUCCEEDED}
"""Reasons for ending a job whose pods may have something to save, so that they get their own grace period."""

AT_ONCE = 1
"""The shortest grace period, in seconds. With 0 the API server would forget a pod that may still run."""

EXCUSABLE = frozenset({Reason.MAX_RESTARTS_EXCEEDED, Reason.CRASH_LOOP})
"""Reasons for ending a job that no longer hold if the last failure turns out not to count."""


def finished(view: View) -> Verdict | None:
    """A finished job never restarts. Its pods are removed according to cleanPodPolicy, and the job after its TTL."""
    if not view.status.finished:
        return _restored(view)
    if view.is_due(expiry(view.spec, view.status)):
        return Verdict(view.status, None, (DeleteJob(),))
    left = tuple(_left_over(view))
    grace = None if _ended_gently(view) else short_grace(view)
    return Verdict(view.status, None, delete(view, left, grace=grace))


def finished_due(view: View) -> Times:
    """When the job will be deleted, and when a pod that does not stop will be removed."""
    yield expiry(view.spec, view.status)
    if view.status.finished and view.spec.clean_pod_policy is not CleanPodPolicy.NONE:
        yield from stops_due(view)


def _restored(view: View) -> Verdict | None:
    """Ends a job that had finished, but was restored without its status, for example from a backup.

    A copy of a finished job carries the mark of the original but has another name, and counts as a new job.
    """
    final, _, name = (view.snapshot.mark or "").partition(" ")
    has_status = view.status.observed_generation > 0  # A job that has a status is not restored from its mark.
    if has_status or name != digest_of_name(view.snapshot.job):
        return None
    target = ConditionType.SUCCESS_CRITERIA_MET if final == State.SUCCEEDED else ConditionType.FAILURE_TARGET
    message = "The job had finished before it was restored without its status; it does not run again"
    return end(view, target, Reason.RESTORED_WITHOUT_STATUS, message)


def ending(view: View) -> Verdict | None:
    """A job whose outcome is decided ends as soon as no pods run, unless its last failure turns out not to count."""
    for target in (ConditionType.SUCCESS_CRITERIA_MET, ConditionType.FAILURE_TARGET):
        said = view.status.condition(target)
        if said is not None and said.status == "True":
            entry = amended_last_incident(view)
            message = _as_known_now(view, entry, said.message)
            known = hindsight(view, entry)
            return _excused(view, said, entry) or end(view, target, said.reason, message, known)
    return None


def _as_known_now(view: View, entry: Entry | None, message: str) -> str:
    """Corrects the message of the decision to end: it names the rank that is now known to have failed first."""
    known = view.status.last_incident
    if known is None or entry is None:
        return message
    before, now = incident_sentence(Facts.of(known), view.called), incident_sentence(entry.facts, view.called)
    return now + message.removeprefix(before) if message.startswith(before) else message


def succeeded(view: View) -> Verdict | None:
    """The job succeeds according to its success policy, even if a deadline passes before the success is noticed.

    A suspended job does not succeed: its ranks ended because they were told to stop, and will start again.
    """
    if not view.started or view.suspended:
        return None
    if view.succeeded == view.nodes:
        message = f"{counted(view.nodes, 'node')} finished"
        if view.spec.held:  # Its supervisors exit with 0 for no other reason.
            message = "The hold has ended, because no program has run for its idle time"
        return end(view, ConditionType.SUCCESS_CRITERIA_MET, Reason.ALL_RANKS_SUCCEEDED, message)
    if view.spec.success_policy is SuccessPolicy.RANK_ZERO and _rank_zero_finished(view):
        return end(view, ConditionType.SUCCESS_CRITERIA_MET, Reason.RANK_ZERO_SUCCEEDED, "Rank 0 finished")
    return None


def _rank_zero_finished(view: View) -> bool:
    """Whether rank 0 really finished. It also exits with 0 if all ranks save because another one was told to stop."""
    first = view.current.get(0)
    ended_at = first.exit.finished_at if first is not None and first.exit is not None else None
    others = (pod for node, pod in view.current.items() if node not in view.finished)
    return 0 in view.finished and not any(pod.was_told_before(ended_at) for pod in others)


def cancelled(view: View) -> Verdict | None:
    """A job that somebody cancels fails, also while it is suspended or waits in its queue."""
    if not view.spec.cancel:
        return None
    message = "The job was cancelled (spec.cancel)"
    verdict = fail(view, Reason.CANCELLED, message)
    resting = Say(ConditionType.SUSPENDED, value=False, reason=Reason.CANCELLED, message=message)
    return replace(verdict, status=with_conditions(view, verdict.status, resting))


def past_deadlines(view: View) -> Verdict | None:
    """A job that has been active for activeDeadlineSeconds fails, whatever it is doing.

    A job whose gang has not come up within startDeadlineSeconds fails, too. Its message states what the gang was
    waiting for.
    """
    spec = view.spec
    if view.is_due(deadline(spec, view.status)):
        message = f"The job was active for longer than {spec.active_deadline_seconds} s (activeDeadlineSeconds)"
        return fail(view, Reason.DEADLINE_EXCEEDED, message)
    if view.up or not view.is_due(start_deadline(spec, view.status)):  # `up` may be true before the status says so.
        return None
    never = f"Not all {view.noun}s ran within {spec.start_deadline_seconds} s (startDeadlineSeconds)"
    return fail(view, Reason.START_DEADLINE_EXCEEDED, f"{never}: {awaited(view)}")


def deadlines_due(view: View) -> Times:
    """When the job's deadlines pass, unless it has finished."""
    if not view.status.finished:
        yield deadline(view.spec, view.status)
        yield start_deadline(view.spec, view.status)


def deadline(spec: DDPJobSpec, status: DDPJobStatus) -> datetime | None:
    """Returns when the job will have been active for too long."""
    return after(status.start_time, spec.active_deadline_seconds)


def start_deadline(spec: DDPJobSpec, status: DDPJobStatus) -> datetime | None:
    """Returns when the job will have been active for too long without all its nodes ever having run."""
    return None if status.first_run_time else after(status.start_time, spec.start_deadline_seconds)


def expiry(spec: DDPJobSpec, status: DDPJobStatus) -> datetime | None:
    """Returns when a finished job will be deleted."""
    return after(status.completion_time, spec.ttl_seconds_after_finished)


def end(view: View, target: ConditionType, reason: str, message: str, blame: StatusChanges | None = None) -> Verdict:
    """Decides that the job ends, and ends it as soon as no pods run.

    `blame` contains the fields of the status that record the incident that ends the job. Without it, the last
    incident is updated with all that is known by now.
    """
    failed = target is ConditionType.FAILURE_TARGET
    decided = Say(target, value=True, reason=reason, message=message)
    blame = hindsight(view, amended_last_incident(view)) if blame is None else blame
    # This takes two steps: the decision is recorded while pods still run, the end once no pods run any more.
    left = tuple(pod for pod in view.active if not _goes_on(view, pod, reason))
    if left:
        stopping, status = f"Stopping {view.pods(len(left))}: {message}", updated(view, decided, **blame)
        return Verdict(status, stopping, _stopping(view, left, reason, culprit(status)))
    ended = (
        decided,
        Say(ConditionType.FAILED if failed else ConditionType.COMPLETE, value=True, reason=reason, message=message),
        Say(ConditionType.RUNNING, value=False, reason=reason, message=message),
        Say(ConditionType.RESTARTING, value=False, reason=reason, message=message),
    )
    over: StatusChanges = {**blame, "completion_time": view.now, "backoff_until": None}
    return Verdict(updated(view, *ended, **over), message)


def fail(view: View, reason: str, message: str, **changes: Unpack[StatusChanges]) -> Verdict:
    """Decides that the job fails. `changes` to the status record why."""
    return end(view, ConditionType.FAILURE_TARGET, reason, message, changes or None)


def _excused(view: View, said: Condition, entry: Entry | None) -> Verdict | None:
    """Cancels the failure of a job that had no restarts left, if its last failure turns out to be a disruption.

    Returns None if a restart after this disruption is not allowed either.
    """
    if said.reason not in EXCUSABLE or entry is None or entry.judgement.action is not RestartAction.RESTART_FREE:
        return None
    entry = excused(view, entry, budget(view))
    if entry is None:
        return None
    wait = wait_after(view, entry.price.budget)
    message, cause = f"{entry.said} in {wait.total_seconds():.1f} s", entry.facts.cause
    not_failing = Say(ConditionType.FAILURE_TARGET, value=False, reason=cause, message=message)
    says, changes = (*restarting(cause, message), not_failing), hindsight(view, entry)
    return start_again(view, says, message, grace=short_grace(view), wait=wait, **changes)


def _goes_on(view: View, pod: Pod, reason: str) -> bool:
    """Whether a pod may keep running after the job's end (cleanPodPolicy None). After a deadline no pod may."""
    keeps = view.spec.clean_pod_policy is CleanPodPolicy.NONE and reason not in {*GENTLE, Cause.STARTED_OVER}
    return keeps and not pod.deleting and pod.node < view.nodes


def _stopping(view: View, pods: tuple[Pod, ...], reason: str, first: str) -> tuple[Action, ...]:
    """Stops pods. If no rank has failed, all running pods are kept with their logs: nothing else shows what they did.

    After a failure only `first`, the pod that failed first, is kept. A gang that has started over is deleted
    immediately, because it must not save any more.
    """
    if reason == Cause.STARTED_OVER:
        return delete(view, pods, grace=AT_ONCE)
    if reason in FROM_OUTSIDE:
        return stop(view, pods, {pod.name for pod in pods}, grace=None)
    return delete(view, pods, grace=None) if reason in GENTLE else stop(view, pods, {first}, grace=short_grace(view))


def _left_over(view: View) -> Iterator[Pod]:
    """Yields the pods of a finished job that must be removed."""
    policy = view.spec.clean_pod_policy
    for pod in view.snapshot.pods:
        runs = view.lives(pod) or pod.lingering
        stays = policy is CleanPodPolicy.NONE and pod.node < view.nodes
        if policy is CleanPodPolicy.ALL or (runs and not stays):
            yield pod


def _ended_gently(view: View) -> bool:
    failed = view.status.condition(ConditionType.FAILED)
    return failed is not None and failed.reason in GENTLE
