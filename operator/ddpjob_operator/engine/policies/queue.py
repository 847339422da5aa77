"""Policies for jobs in a queue of Kueue, which run only while the queue admits them."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta

from ddpjob_operator.api import ConditionType, DDPJobStatus
from ddpjob_operator.api.reasons import Reason
from ddpjob_operator.engine.changes import changed
from ddpjob_operator.engine.conditions import Obstacle, Say, updated
from ddpjob_operator.engine.decision import (
    Action,
    Create,
    Delete,
    DeleteJob,
    Patch,
    Resize,
    Tell,
)
from ddpjob_operator.engine.manifests.kueue_workload import build_kueue_workload
from ddpjob_operator.engine.owned import KUEUE_WORKLOAD
from ddpjob_operator.engine.snapshot import KueueWorkload, Queue, Waiting
from ddpjob_operator.engine.view import View

from .obstacles import creation_obstacle
from .steps import delete, inherited
from .suspension import RESUMED, halted
from .verdict import Times, Verdict

NO_KUEUE = Obstacle(
    Reason.QUEUE_UNAVAILABLE,
    "The label kueue.x-k8s.io/queue-name names a queue, but the cluster does not serve Kueue's Workloads "
    "(kueue.x-k8s.io/v1beta2), or does not permit the operator to create them: install Kueue, or remove the label",
)

BLOCKING = frozenset({"ExceedsMaxQuota", "Inadmissible", "Misconfigured", "NoMatchingFlavor"})
"""Kueue's reasons that waiting does not resolve: https://kueue.sigs.k8s.io/docs/concepts/workload/."""

REQUEUED = frozenset({"Preempted", "NodeFailures"})
"""Reasons for an eviction after which Kueue expects the job to be queued again immediately."""

ENTERING = Waiting(Reason.QUEUE_ENTERED, "the queue has not processed the job yet")
ASKS_ANEW = Waiting(Reason.QUEUE_CHANGED, "the job no longer requests what it was admitted with")
TAKEN_OUT = Waiting(Reason.QUEUE_CHANGED, "the job's Workload was deleted")
UNREADY = ("PodsReady", False, "WaitForStart", "Not all pods are ready or succeeded")

FLAVOR_RECHECK = timedelta(seconds=10)

RUN_CONDITIONS = (ConditionType.CREATED, ConditionType.RUNNING, ConditionType.RESTARTING)


def queued(view: View) -> Verdict | None:
    """A job waits until its queue admits it. If the admission is withdrawn, each pod saves within its grace period.

    This does not use up the restart budget.
    """
    if view.snapshot.queue is None:
        return None
    if view.snapshot.kueue_workloads is None:
        # A gang that exists continues, even if Kueue has been removed.
        return None if view.created else Verdict(view.status, NO_KUEUE.message, blocked=NO_KUEUE)
    if not view.awaits_admission:
        return _unknown_flavor(view)
    return (
        _entering(view, view.snapshot.queue) if view.kueue_workload is None else _waiting(view, view.kueue_workload)
    )


def _entering(view: View, queue: Queue) -> Verdict:
    """Handles a job that has no Workload in its queue yet, or whose Workload was deleted."""
    job = view.snapshot.job
    if not view.started:  # Inherited metadata is fixed only when a job starts.
        job = job.with_status(changed(job.status, inherited=inherited(view)))
    enter = Create(KUEUE_WORKLOAD, build_kueue_workload(job, queue))
    if view.refused:
        return _stop(view, TAKEN_OUT) if view.active else _wait(view, ENTERING, blocked=creation_obstacle(view))
    # The queue may admit the job immediately, so running pods continue until the queue is known not to do so.
    return (
        Verdict(view.status, None, (enter,))
        if view.active
        else _wait(view, ENTERING, enter, blocked=creation_obstacle(view))
    )


def _waiting(view: View, own: KueueWorkload) -> Verdict:
    """Handles a job whose queue has not admitted it yet, or wants its quota back."""
    why = _why(view, own)
    if view.active:
        return _stop(view, why)
    return _wait(view, why, *_moves(view, own), blocked=Obstacle(*_words(why)) if why.reason in BLOCKING else None)


def _stop(view: View, why: Waiting) -> Verdict:
    message = f"Waiting for {view.pods(len(view.active))} to save and stop: {why}"
    return Verdict(_halted(view, why), message, delete(view, view.active, grace=None), queued=why)


def _wait(view: View, why: Waiting, *actions: Action, blocked: Obstacle | None) -> Verdict:
    """Handles a waiting job without running pods. Its deadlines do not count down."""
    # A job that was obstructed before it entered the queue has a start time already.
    status = _halted(view, why) if view.started else updated(view, RESUMED, start_time=None)
    return Verdict(status, blocked.message if blocked else _words(why)[1], actions, queued=why, blocked=blocked)


def _words(why: Waiting) -> tuple[str, str]:
    """Returns the reason and the message for a job that is waiting in its queue."""
    return why.reason, f"Waiting in the queue: {why}"


def _halted(view: View, why: Waiting) -> DDPJobStatus:
    says = (Say(kind, value=False, reason=Reason.QUEUED, message=str(why)) for kind in RUN_CONDITIONS)
    return updated(view, RESUMED, *says, **halted(view))


def _why(view: View, own: KueueWorkload) -> Waiting:
    if own.deleting:
        return TAKEN_OUT
    if view.is_other_queue(own):
        return ASKS_ANEW
    return own.waiting or ENTERING


def _moves(view: View, own: KueueWorkload) -> Iterator[Action]:
    """Yields the actions by which a job without running pods applies for admission again."""
    if own.deleting:
        return
    if view.is_other_queue(own):
        yield Delete(KUEUE_WORKLOAD, own.name)
    elif own.evicted and not view.refused:
        yield _given_back(own)


def _given_back(own: KueueWorkload) -> Patch:
    """Releases the quota, which the queue reserves until the job reports that none of its pods run any more."""
    reason, message = (own.waiting.reason, own.waiting.message) if own.waiting else ("Pending", "")
    conditions = (
        ("Requeued", reason in REQUEUED, reason, message),
        ("QuotaReserved", False, "Pending", message),
        ("Admitted", False, "NoReservation", "The workload has no reservation"),
        UNREADY,
    )
    return Patch(KUEUE_WORKLOAD, own.name, Tell(conditions, releases=True))


def _unknown_flavor(view: View) -> Verdict | None:
    """Lets the job wait if the flavor of its pods, which determines their Kubernetes nodes, cannot be read."""
    problem = next((flavor.problem for flavor in view.snapshot.flavors.values() if flavor.problem), None)
    if problem is None or (view.created and not view.missing):
        return None
    # The operator does not watch flavors, so it has to check again whether the flavor can be read.
    again = view.now + FLAVOR_RECHECK
    return Verdict(view.status, problem, wake_at=again, blocked=Obstacle(Reason.FLAVOR_UNKNOWN, problem))


def queue_told_due(view: View) -> Times:
    """When to retry writing to the job's Workload, after a refusal."""
    refusal, waits = view.snapshot.refusal, view.awaits_admission and not view.status.finished
    if refusal is not None and (waits or any(_told(view, view.status))):
        yield refusal.retry_at


def queue_told(view: View, verdict: Verdict) -> Verdict:
    """Reports the job's state to its queue. A job leaves the queue if it is suspended or has lost its queue label."""
    if not view.snapshot.kueue_workloads or DeleteJob() in verdict.actions:
        return verdict
    if view.refused:
        return verdict
    return replace(verdict, actions=(*verdict.actions, *_told(view, verdict.status)))


def _told(view: View, status: DDPJobStatus) -> Iterator[Action]:
    own, job = view.kueue_workload, view.snapshot.job
    if view.snapshot.queue is None or (job.spec.suspend and not status.finished and not view.active):
        leaving = (workload for workload in view.snapshot.kueue_workloads or () if not workload.deleting)
        yield from (Delete(KUEUE_WORKLOAD, workload.name) for workload in leaving)
    elif own is None or own.finished or own.deleting:
        return
    elif status.finished:
        reason = "Succeeded" if status.succeeded else "Failed"
        yield _tells(own, "Finished", reason, status.message)
    elif view.is_other_queue(own):
        return
    elif (size := _size(view, own)) != (own.nodes, own.least):
        yield Patch(KUEUE_WORKLOAD, own.name, Resize(*size))
    elif view.admission is not None and status.is_true(ConditionType.RUNNING) and not own.ready:
        yield _tells(own, "PodsReady", "Started", "All pods reached readiness")


def _tells(own: KueueWorkload, condition: str, reason: str, message: str) -> Patch:
    return Patch(KUEUE_WORKLOAD, own.name, Tell(((condition, True, reason, message),)))


def _size(view: View, own: KueueWorkload) -> tuple[int, int | None]:
    """Returns how many nodes the job now requests from its queue, and the smallest number that it accepts."""
    spec = view.snapshot.job.spec
    if own.reserved:  # Pods that have not ended still use their quota.
        return own.nodes if len(view.active) > spec.nodes else spec.nodes, own.least
    return spec.nodes, spec.elastic.min_nodes if spec.elastic else None
