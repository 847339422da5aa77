"""How a gang comes up."""

from datetime import datetime, timedelta

from ddpjob_operator.api import ConditionType, DDPJobStatus
from ddpjob_operator.api.reasons import Reason
from ddpjob_operator.api.words import counted
from ddpjob_operator.engine.incident import culprit
from ddpjob_operator.engine.saying import Obstacle, Say, updated
from ddpjob_operator.engine.snapshot import Pod, Service, Waiting
from ddpjob_operator.engine.supervision import comes_up, is_outdated, missed, quiet_of, said_of
from ddpjob_operator.engine.view import View
from ddpjob_operator.engine.waiting import VOLUMES_AND_NETWORK, needed

from .sizing import lacking, look_out
from .steps import creating, default_image, delete, grace_between, short_grace, start, stop, waiting_to_end
from .verdict import Verdict

SERVICE_RECHECK = timedelta(seconds=5)
"""Nothing that we watch changes when a foreign Service goes away."""


NO_IMAGE = (
    "No image is named: give the trainer container one (spec.template.spec.containers), or have the operator's "
    "administrator set one for jobs that name none (trainerImage)"
)

OUTDATED = "their image is older than this operator, and its supervisors believe whoever reaches them: build it anew"


def first_start(view: View) -> Verdict | None:
    """A job that was never started starts."""
    return None if view.started else start(view)


def between_attempts(view: View) -> Verdict | None:
    """No attempt begins before its backoff is over, nor while pods of a former one may still run."""
    if view.created:
        return None
    actions = stop(view, view.previous, {culprit(view.status)}, grace=grace_between(view))
    running = sum(view.lives(pod) for pod in view.previous)
    until = view.status.backoff_until
    waiting = until is not None and until > view.now
    if not (actions or running or waiting):
        return None
    message = _why_again(view) if waiting else waiting_to_end(view, running)
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
    return _kept_waiting(view, Obstacle(Reason.SERVICE_TAKEN, message), wake_at=view.now + SERVICE_RECHECK)


def image_missing(view: View) -> Verdict | None:
    """A job that names no image waits until somebody names one: its user, or the operator's administrator."""
    if view.created or view.spec.trainer.get("image") or default_image(view):
        return None
    return _kept_waiting(view, Obstacle(Reason.IMAGE_MISSING, NO_IMAGE))


def _kept_waiting(view: View, obstacle: Obstacle, wake_at: datetime | None = None) -> Verdict:
    """The job does not start, and its clocks run."""
    status = _seen(view).model_copy(update={"start_time": view.status.start_time or view.now})
    return Verdict(status, obstacle.message, wake_at=wake_at, blocked=obstacle)


def refused(view: View) -> Verdict | None:
    """While the cluster refuses to make what is missing, the job says so in the cluster's words and tries again."""
    refusal = view.snapshot.refusal
    if refusal is None:
        return None
    actions = creating(view, view.status, view.missing)
    if not actions:
        return None
    again = actions if view.now >= refusal.retry_at else ()
    return Verdict(_seen(view), refusal.message, again, wake_at=refusal.retry_at, blocked=_in_the_way(view))


def children_missing(view: View) -> Verdict | None:
    """Whatever of this attempt does not exist yet is made; all of it in one round.

    What was refused before is in the way until it is made, also for a process that has not met the refusal itself.
    """
    actions = creating(view, view.status, view.missing)
    if not actions:
        return None
    obstacle = _in_the_way(view)
    beside = "Creating the Service" if view.service is Service.MISSING else "Setting the NetworkPolicy right"
    pods = f"Creating {len(view.missing)} of {view.pods(view.nodes)}"
    message = obstacle.message if obstacle else pods if view.missing else beside
    return Verdict(_seen(view), message, actions, blocked=obstacle)


def under_way(view: View) -> Verdict | None:
    """All pods exist: they start, run and finish. One of a former attempt that comes late is ended."""
    late = delete(view, view.previous, grace=short_grace(view))
    made = f"{counted(view.nodes, 'node')} created"  # Pods on a cluster, processes on one machine.
    created = Say(ConditionType.CREATED, value=True, reason=Reason.PODS_CREATED, message=made)
    if not view.up:
        message = f"{view.running + view.succeeded} of {view.pods(view.nodes)} running{_waiting_for(view)}"
        said = Say(ConditionType.RUNNING, value=False, reason=Reason.PODS_STARTING, message=message)
        return Verdict(updated(view, created, said), message, late)
    if comes_up(view):
        return Verdict(updated(view, created), missed(view) or _why_again(view), late)
    all_run, why = f"{counted(view.nodes, 'node')} running", Reason.ALL_PODS_RUNNING
    if is_outdated(view):
        all_run, why = f"{all_run}; {OUTDATED}", Reason.SUPERVISOR_OUTDATED
    message = _finished(view) if view.succeeded else all_run
    message = said_of(view) or "; ".join(part for part in (message, quiet_of(view)) if part)
    running = Say(ConditionType.RUNNING, value=True, reason=why, message=all_run)
    attempt = f"Attempt {view.status.attempt} runs"
    recovered = Say(ConditionType.RESTARTING, value=False, reason=Reason.RESTARTED, message=attempt)
    status = updated(view, created, running, recovered, backoff_until=None, first_run_time=_first_run(view))
    obstacle = _in_the_way(view) if lacking(view) else None
    if obstacle is not None:
        message = f"{message}; the gang cannot grow: {obstacle.message}"
    return Verdict(status, message, (*late, *look_out(view)), blocked=obstacle)


def _why_again(view: View) -> str:
    """Why a gang starts once more. What was said last may be of something that has passed since."""
    again = view.status.condition(ConditionType.RESTARTING)
    if again is not None and again.status == "True":
        return again.message
    return "Waiting to try again" if view.status.is_true(ConditionType.BLOCKED) else view.status.message


def _finished(view: View) -> str:
    return f"{view.succeeded} of {counted(view.nodes, 'node')} finished: {view.who_left}"


def _seen(view: View) -> DDPJobStatus:
    """What was said last, and whether all ranks have run since: they may although something else is missing."""
    return updated(view, first_run_time=_first_run(view))


def _first_run(view: View) -> datetime | None:
    return view.status.first_run_time or (view.now if view.up else None)


def _in_the_way(view: View) -> Obstacle | None:
    """Why what is missing is not made: as this process was told, or as the status says.

    That is perhaps what another process was told, and holds until this one has tried.
    """
    refusal, said = view.snapshot.refusal, view.status.condition(ConditionType.BLOCKED)
    if refusal is not None:
        return Obstacle(refusal.reason, refusal.message)
    return Obstacle(said.reason, said.message) if said is not None and said.status == "True" else None


def _waiting_for(view: View) -> str:
    """Which rank the gang waits for, why, and how many more with it."""
    waiting = [pod for pod in view.current.values() if not pod.running and pod.active]
    if not waiting:
        return ""
    first = next((pod for pod in waiting if pod.waiting), waiting[0])
    alike = sum(pod.waiting == first.waiting and (pod.node is None) == (first.node is None) for pod in waiting) - 1
    more = f" and {alike} more" if alike else ""
    return f"; rank {first.rank}{more}: {first.waiting or _silent(first)}{_volumes(view, first)}"


def _volumes(view: View, pod: Pod) -> str:
    """What a pod's volumes need, where it waits for those: one that is missing is among them."""
    if pod.waiting is None or pod.waiting.reason != VOLUMES_AND_NETWORK:
        return ""
    volumes = needed(view.spec.template)
    return f" (are they there? {', '.join(volumes)})" if volumes else ""


def _silent(pod: Pod) -> Waiting:
    """What a pod waits for of which nobody says anything."""
    return Waiting("waiting for a node") if pod.node is None else Waiting(f"starting on node {pod.node}")
