"""The life of a job, one policy after another: the first that has something to say decides.

Read POLICIES as the table of contents. Each policy looks at the whole present state and returns a verdict or None.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from ddpjob_operator.api import (
    Budget,
    Cause,
    ConditionType,
    DDPJobStatus,
    Failure,
    Incarnations,
    NetworkPolicy,
    State,
)
from ddpjob_operator.api.words import counted

from .budget import backoff, charged, present
from .build import build_network_policy, build_pod, build_service
from .decision import Action, CreateNetworkPolicy, CreatePod, CreateService, DeleteNetworkPolicy, DeletePod
from .incident import FINAL, FREE, amended, failure_of, first_of, lost_pod, lost_with_its_node
from .naming import network_policy_name, pod_name
from .saying import Say, updated
from .snapshot import Pod, Service
from .view import View, deadline


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one policy wants: a status and a sentence, actions that it authorises, and when to look again."""

    status: DDPJobStatus
    message: str
    actions: tuple[Action, ...] = ()
    wake_at: datetime | None = None
    blocked: str = ""
    """Reason, in one word, why something outside of the job keeps it from going on; the message tells it."""


Policy = Callable[[View], Verdict | None]

DEADLINE_EXCEEDED = "DeadlineExceeded"

HURRY_MARGIN = timedelta(seconds=5)
"""Deletion times have whole seconds and come from another clock; less than this is not worth a second request."""

SERVICE_RECHECK = timedelta(seconds=5)
"""Nothing that we watch changes when a foreign Service goes away."""


def finished(view: View) -> Verdict | None:
    """Finished means finished: nothing restarts it, and whatever still runs is ended."""
    if not view.status.finished:
        return None
    left = (pod for pod in view.snapshot.pods if pod in view.active or pod.lingering)
    return Verdict(view.status, view.status.message, _delete(view, left, grace=_grace(view)))


def ending(view: View) -> Verdict | None:
    """The end is decided; it is reached when nothing runs any more."""
    for target in (ConditionType.SUCCESS_CRITERIA_MET, ConditionType.FAILURE_TARGET):
        said = view.status.condition(target)
        if said is not None and said.status == "True":
            succeeded = target is ConditionType.SUCCESS_CRITERIA_MET
            return _end(view, succeeded=succeeded, reason=said.reason, message=said.message)
    return None


def suspended(view: View) -> Verdict | None:
    """Suspension lets every pod save within its own grace period; it costs nothing of the budget."""
    if not view.spec.suspend:
        return None
    stopped = (
        Say(ConditionType.CREATED, value=False, reason="Suspended", message="Suspended"),
        Say(ConditionType.RUNNING, value=False, reason="Suspended", message="Suspended"),
        Say(ConditionType.RESTARTING, value=False, reason="Suspended", message="Suspended"),
    )
    if view.active:
        message = f"{counted(len(view.active), 'pod')} to save and stop"
        return Verdict(updated(view, *stopped, budget=_budget(view)), message, _delete(view, view.active, grace=None))
    message = "Nothing runs until the job is resumed"
    said = Say(ConditionType.SUSPENDED, value=True, reason="JobSuspended", message=message)
    status = updated(view, *stopped, said, budget=_budget(view), start_time=None, backoff_until=None)
    return Verdict(status, message)


def resumed(view: View) -> Verdict | None:
    """After suspension, be it half-way, the gang starts again as a new attempt, with its clock at zero."""
    if view.status.state not in {State.SUSPENDING, State.SUSPENDED}:
        return None
    return _start(view, Say(ConditionType.SUSPENDED, value=False, reason="JobResumed", message="Resumed"))


def first_start(view: View) -> Verdict | None:
    """A job that was never started starts."""
    return None if view.started else _start(view)


def past_deadline(view: View) -> Verdict | None:
    """A job that has been active for activeDeadlineSeconds fails, whatever it is doing."""
    limit = deadline(view.spec, view.status)
    if limit is None or view.now < limit:
        return None
    message = f"The job was active for {view.spec.active_deadline_seconds} s (activeDeadlineSeconds)"
    return _fail(view, DEADLINE_EXCEEDED, message)


def resized(view: View) -> Verdict | None:
    """Another number of nodes is another world: the gang saves, stops, and starts again with it, at no cost."""
    if view.spec.nodes == view.nodes:
        return None
    said = _restarting(view, "Resized", f"From {view.nodes} to {counted(view.spec.nodes, 'node')}")
    fixed = {**_next_attempt(view), **_stamped(view)}
    status = updated(view, *said, **fixed, budget=_budget(view), backoff_until=None)
    return Verdict(status, said[0].message, _delete(view, view.active, grace=None))


def pods_failed(view: View) -> Verdict | None:
    """An incident: at the first failed or lost pod the gang starts again as a whole, or the job fails."""
    failures = [failure_of(pod, view.status.attempt, view.now) for pod in _troubled(view)]
    if not failures:
        return None
    incident = first_of(failures)
    if incident.cause in FINAL:
        return _fail(view, incident.cause, told(incident), last_failure=incident)
    costs = incident.cause not in FREE
    budget = charged(_budget(view, incident.time), counted=costs)
    if costs and budget.used > view.spec.restart.max_restarts:
        message = f"{told(incident)}; no restart is left of {view.spec.restart.max_restarts} (maxRestarts)"
        return _fail(view, "MaxRestartsExceeded", message, last_failure=incident)
    wait = backoff(view.spec.restart, budget.streak, view.snapshot.job.metadata.uid)
    cost = f"restart {budget.used} of {view.spec.restart.max_restarts}" if costs else "restart not counted"
    message = f"{told(incident)}; {cost} in {wait.total_seconds():.1f} s"
    status = updated(
        view,
        *_restarting(view, incident.cause, message),
        **_next_attempt(view),
        restarts=view.status.restarts + costs,
        disruptions=view.status.disruptions + (not costs),
        budget=budget,
        backoff_until=view.now + wait,
        last_failure=incident,
    )
    return Verdict(status, message, _delete(view, view.snapshot.pods, grace=_grace(view)), wake_at=view.now + wait)


def all_succeeded(view: View) -> Verdict | None:
    """The job succeeds when every rank has exited with 0, even if a deadline has passed before anybody looked."""
    if not view.started or view.succeeded < view.nodes:
        return None
    message = f"{counted(view.nodes, 'node')} finished"
    return _end(view, succeeded=True, reason="AllRanksSucceeded", message=message)


def known_better(view: View) -> Verdict | None:
    """What the pods of the attempt that failed say at last may tell more of the incident, and that it was free."""
    if view.created:
        return None
    known, learned = view.status.last_failure, _amendment(view)
    if known is None or learned.get("last_failure", known) == known:
        return None
    return Verdict(updated(view, **learned), view.status.message)


def between_attempts(view: View) -> Verdict | None:
    """No attempt begins before its backoff is over, nor while pods of a former one may still run."""
    if view.created:
        return None
    actions = _delete(view, view.previous, grace=_grace(view))
    running = sum(pod in view.active for pod in view.previous)
    until = view.status.backoff_until
    waiting = until is not None and until > view.now
    if not (actions or running or waiting):
        return None
    message = view.status.message if waiting else _waiting_to_end(running)
    return Verdict(view.status, message, actions, wake_at=until if waiting else None)


def service_taken(view: View) -> Verdict | None:
    """Nothing foreign is touched: while another's Service has the job's name, the job waits and says so."""
    name = view.snapshot.job.metadata.name
    if view.created:
        return None
    if view.service is Service.FORMER:
        message = f"Waiting for Service {name} of the deleted job of the same name to go away"
    elif view.service is Service.FOREIGN:
        message = f"Service {name} exists and belongs to somebody else: delete it, or give the job another name"
    else:
        return None
    return Verdict(view.status, message, wake_at=view.now + SERVICE_RECHECK, blocked="ServiceTaken")


def refused(view: View) -> Verdict | None:
    """While the cluster refuses to make what is missing, the job says so in the cluster's words and tries again."""
    refusal = view.snapshot.refusal
    if refusal is None:
        return None
    actions = _creation(view, view.status, view.missing)
    if not actions:
        return None
    again = actions if view.now >= refusal.retry_at else ()
    return Verdict(view.status, refusal.message, again, wake_at=refusal.retry_at, blocked=refusal.reason)


def children_missing(view: View) -> Verdict | None:
    """Whatever of this attempt does not exist yet is made; all of it in one round."""
    actions = _creation(view, view.status, view.missing)
    if not actions:
        return None
    beside = "Creating the Service" if view.service is Service.MISSING else "Setting the NetworkPolicy right"
    message = f"Creating {len(view.missing)} of {counted(view.nodes, 'pod')}" if view.missing else beside
    return Verdict(view.status, message, actions)


def under_way(view: View) -> Verdict | None:
    """Everything is there: the pods come up, then run. A pod of a former attempt that comes late is ended."""
    late = _delete(view, view.previous, grace=_grace(view))
    created = Say(
        ConditionType.CREATED,
        value=True,
        reason="PodsCreated",
        message=f"{counted(view.nodes, 'pod')} and the Service exist",
    )
    up = view.running + view.succeeded
    if up < view.nodes:
        message = f"{up} of {counted(view.nodes, 'pod')} running{_waiting_for(view)}"
        said = Say(ConditionType.RUNNING, value=False, reason="PodsStarting", message=message)
        return Verdict(updated(view, created, said), message, late)
    all_run = f"{counted(view.nodes, 'node')} running"
    message = f"{view.succeeded} of {counted(view.nodes, 'node')} finished" if view.succeeded else all_run
    running = Say(ConditionType.RUNNING, value=True, reason="AllPodsRunning", message=all_run)
    recovered = Say(
        ConditionType.RESTARTING, value=False, reason="Restarted", message=f"Attempt {view.status.attempt} runs"
    )
    return Verdict(updated(view, created, running, recovered, backoff_until=None), message, late)


POLICIES: tuple[Policy, ...] = (
    finished,
    ending,
    suspended,
    all_succeeded,
    past_deadline,
    service_taken,
    resumed,
    first_start,
    resized,
    pods_failed,
    known_better,
    between_attempts,
    refused,
    children_missing,
    under_way,
)


def told(failure: Failure) -> str:
    """An incident in one sentence: which rank, why, and how many went with it."""
    others = f" ({counted(failure.consequences, 'more rank')} failed with it)" if failure.consequences else ""
    tie = ", one of several at the same moment" if failure.tied else ""
    return f"Rank {failure.rank} failed{tie}: {failure.cause}: {failure.message}{others}"


def _start(view: View, *says: Say) -> Verdict:
    """A new attempt, not after an incident: all in one round, unless pods of the last attempt still save and stop."""
    fixed = {**_next_attempt(view), **_stamped(view), "pod_security": view.snapshot.settings.pod_security}
    status = updated(view, *says, **fixed, start_time=view.now)
    removal = _delete(view, view.snapshot.pods, grace=None)
    if view.active:
        return Verdict(status, _waiting_to_end(len(view.active)), removal)
    creation = _creation(view, status, range(view.spec.nodes))
    return Verdict(status, f"Creating {counted(view.spec.nodes, 'pod')}", (*removal, *creation))


def _waiting_to_end(count: int) -> str:
    return (
        f"Waiting for {counted(count, 'pod')} of the last attempt to end"
        if count
        else "Removing the pods of the last attempt"
    )


def _fail(view: View, reason: str, message: str, last_failure: Failure | None = None) -> Verdict:
    return _end(view, succeeded=False, reason=reason, message=message, last_failure=last_failure)


def _end(view: View, *, succeeded: bool, reason: str, message: str, last_failure: Failure | None = None) -> Verdict:
    """The decision to end, and the end itself once nothing runs."""
    target = ConditionType.SUCCESS_CRITERIA_MET if succeeded else ConditionType.FAILURE_TARGET
    end = ConditionType.SUCCEEDED if succeeded else ConditionType.FAILED
    blame = {"last_failure": last_failure} if last_failure else _amendment(view)
    decided = Say(target, value=True, reason=reason, message=message)
    if view.active:
        grace = None if reason == DEADLINE_EXCEEDED else _grace(view)
        stopping = f"Stopping {counted(len(view.active), 'pod')}: {message}"
        return Verdict(updated(view, decided, **blame), stopping, _delete(view, view.active, grace=grace))
    ended = (
        decided,
        Say(end, value=True, reason=reason, message=message),
        Say(ConditionType.RUNNING, value=False, reason=reason, message=message),
        Say(ConditionType.RESTARTING, value=False, reason=reason, message=message),
    )
    return Verdict(updated(view, *ended, **blame, completion_time=view.now, backoff_until=None), message)


def _restarting(view: View, reason: str, message: str) -> tuple[Say, ...]:
    return (
        Say(ConditionType.RESTARTING, value=True, reason=reason, message=message),
        Say(ConditionType.RUNNING, value=False, reason=reason, message=message),
        Say(
            ConditionType.CREATED, value=False, reason=reason, message=f"Attempt {view.status.attempt + 1} is to come"
        ),
    )


def _next_attempt(view: View) -> dict[str, Any]:
    """The gang starts once more, and every rank with a new pod: a former pod is one of a smaller incarnation."""
    incarnations = Incarnations(default=view.status.incarnations.default + 1)
    return {"attempt": view.status.attempt + 1, "incarnations": incarnations}


def _stamped(view: View) -> dict[str, Any]:
    """What is fixed for the attempts to come, whatever a later operator's defaults are."""
    return {
        "nodes": view.spec.nodes,
        "procs_per_node": view.spec.resolved_procs_per_node(),
        "backend": view.spec.resolved_backend(),
        "master_port": view.spec.master_port,
    }


def _creation(view: View, status: DDPJobStatus, ranks: Iterable[int]) -> tuple[Action, ...]:
    job = view.snapshot.job.model_copy(update={"status": status})
    service = (CreateService(build_service(job)),) if view.service is Service.MISSING else ()
    return (*_network_policy(view), *service, *(CreatePod(rank, build_pod(job, rank)) for rank in ranks))


def _network_policy(view: View) -> tuple[Action, ...]:
    """Before the pods: none is open for a moment."""
    job, settings = view.snapshot.job, view.snapshot.settings
    wanted = job.spec.network_policy is NetworkPolicy.ENABLED
    if wanted == view.snapshot.network_policy:
        return ()
    if not wanted:
        return (DeleteNetworkPolicy(network_policy_name(job)),)
    return (CreateNetworkPolicy(build_network_policy(job, settings)),)


def _delete(view: View, pods: Iterable[Pod], *, grace: int | None) -> tuple[Action, ...]:
    """Deletes what nobody has deleted yet, or only with a much longer grace period than this."""
    limit = None if grace is None else view.now + timedelta(seconds=grace) + HURRY_MARGIN
    return tuple(DeletePod(pod.name, pod.uid, grace) for pod in pods if not pod.deleting or _is_late(pod, limit))


def _is_late(pod: Pod, limit: datetime | None) -> bool:
    return limit is not None and pod.gone_by is not None and pod.gone_by > limit


def _budget(view: View, failed_at: datetime | None = None) -> Budget:
    """The budget as it was at a failure, which may have been seen only later, or as it is now."""
    return present(view.spec, view.status, view.now if failed_at is None else min(failed_at, view.now))


def _grace(view: View) -> int:
    return view.spec.restart.grace_period_seconds


def _troubled(view: View) -> list[Pod]:
    """Present pods that failed, that somebody else deletes, or that were there and are not any more."""
    bad = [pod for pod in view.current.values() if pod.failed or (pod.deleting and pod.active)]
    if not view.created:
        return bad
    job, incarnation = view.snapshot.job, view.status.incarnations.default
    return bad + [lost_pod(pod_name(job, rank, incarnation), rank, incarnation) for rank in view.missing]


def _amendment(view: View) -> dict[str, Any]:
    """What the pods of the attempt that failed have said since about who was first.

    A pod that went with its node says nothing: it is overdue. That explains the loss of a peer, and nothing else: a
    pod that hangs in its end is overdue as well.
    """
    known = view.status.last_failure
    if known is None:
        return {}
    attempt, now = known.attempt, view.now
    incarnation = view.status.incarnations.default - (view.status.attempt - attempt)
    pods = [pod for pod in view.snapshot.pods if pod.incarnation == incarnation]
    later = [failure_of(pod, attempt, now) for pod in pods if pod.failed]
    if known.cause is Cause.PEER_LOST:
        later += [lost_with_its_node(pod, attempt, now) for pod in pods if pod.active and view.lost(pod)]
    failure = amended(known, later)
    return {"last_failure": failure, **_refund(view.status, known, failure)}


def _refund(status: DDPJobStatus, before: Failure, after: Failure) -> dict[str, Any]:
    """Gives back what an incident has cost that turns out to be free."""
    if before.cause in FREE or after.cause not in FREE:
        return {}
    budget = status.budget.model_copy(update={"used": status.budget.used - 1})
    return {"restarts": status.restarts - 1, "disruptions": status.disruptions + 1, "budget": budget}


def _waiting_for(view: View) -> str:
    waiting = [pod for pod in view.current.values() if not pod.running and pod.active and pod.waiting]
    return f"; rank {waiting[0].rank}: {waiting[0].waiting}" if waiting else ""
