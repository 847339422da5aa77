"""Every moment at which time alone changes what is to be done: policies ask for it, and so does the next look."""

from collections.abc import Iterator
from datetime import datetime, timedelta

from ddpjob_operator.api import CleanPodPolicy, ConditionType, DDPJobSpec, DDPJobStatus, SuccessPolicy

from .budget import JITTER, share
from .causes import unstartable_at
from .supervision import lost_at, silent_at
from .view import LOST_AFTER, View

SETTLING = timedelta(seconds=5)
"""It may be a rank of the gang's own that has finished and left the place: of these two either may be heard first."""

SLOWER = 3
"""Volumes and images take longer than places do: so many times scheduleTimeoutSeconds."""

DEFAULT_GRACE_SECONDS = 30
"""Kubernetes' own, where a pod says nothing."""


def deadline(spec: DDPJobSpec, status: DDPJobStatus) -> datetime | None:
    """When the job has been active for too long."""
    return _after(status.start_time, spec.active_deadline_seconds)


def start_deadline(spec: DDPJobSpec, status: DDPJobStatus) -> datetime | None:
    """When the job has been active for too long without ever having run as a whole."""
    return None if status.first_run_time else _after(status.start_time, spec.start_deadline_seconds)


def expiry(spec: DDPJobSpec, status: DDPJobStatus) -> datetime | None:
    """When a finished job is deleted."""
    return _after(status.completion_time, spec.ttl_seconds_after_finished)


def gang_timeout(view: View) -> datetime | None:
    """When a gang of which some pods have nodes and others have none gives them back.

    A little later than was asked for, and for each job and attempt in its own way: else two jobs that hold what the
    other one needs would let go in the same moment, and take the same again.
    """
    return _since_first_place(view, _schedule_seconds(view)) if 0 < view.placed < view.nodes else None


def stuck_time(view: View) -> datetime | None:
    """When a gang that has all its nodes, and pods that do not come to run there, gives all back as well.

    Never while a pod does something: what an init container fetches takes as long as it takes.
    """
    waiting = [pod for pod in view.current.values() if pod.active and not pod.running]
    if not waiting or view.placed < view.nodes or any(pod.waiting and pod.waiting.busy for pod in waiting):
        return None
    last = max((pod.scheduled_at for pod in view.current.values() if pod.scheduled_at), default=None)
    return _after(last, SLOWER * _schedule_seconds(view))


def _schedule_seconds(view: View) -> float:
    key = f"{view.snapshot.job.metadata.uid}/{view.status.attempt}"
    return view.spec.schedule_timeout_seconds * (1 + JITTER * share(key))


def shrink_time(view: View) -> datetime | None:
    """When an elastic gang goes on with those of its pods that have nodes."""
    elastic = view.spec.elastic
    if elastic is None or not elastic.min_nodes <= view.placed < view.nodes:
        return None
    return _since_first_place(view, elastic.shrink_after_seconds)


def growth_time(view: View) -> datetime | None:
    """When an elastic gang starts again with what places were found: soon if none is missing any more.

    Never once a rank has finished: the others are about to.
    """
    elastic = view.spec.elastic
    found = [pod.scheduled_at or view.now for pod in view.found]
    if elastic is None or not found or view.succeeded or view.nodes >= view.spec.nodes:
        return None
    if view.nodes + len(found) >= view.spec.nodes:
        return max(found) + SETTLING
    return min(found) + max(SETTLING, timedelta(seconds=elastic.shrink_after_seconds))


def finish_timeout(view: View) -> datetime | None:
    """When ranks that have not finished although others have count as stalled."""
    if not 0 < view.succeeded < view.nodes or view.spec.success_policy is not SuccessPolicy.ALL_RANKS:
        return None
    return _after(max(view.finish_times, default=None), view.spec.finish_timeout_seconds)


def stop_timeout(view: View) -> datetime | None:
    """When a pod that was told to stop and to stay has not, and its node is taken for lost."""
    status = view.status
    failing, created = status.condition(ConditionType.FAILURE_TARGET), status.condition(ConditionType.CREATED)
    if failing is not None and failing.status == "True":
        since = failing.last_transition_time
    elif created is not None and created.status == "False":  # Its gang is to start again.
        since = created.last_transition_time
    else:
        return None
    grace = view.spec.template["spec"].get("terminationGracePeriodSeconds", DEFAULT_GRACE_SECONDS)
    return since + timedelta(seconds=grace) + LOST_AFTER


def is_stop_overdue(view: View) -> bool:
    """Whether that moment has passed."""
    limit = stop_timeout(view)
    return limit is not None and view.now >= limit


def next_look(view: View, wanted: datetime | None, status: DDPJobStatus) -> datetime | None:
    """The next moment at which time alone changes the decision; `status` is what is said now."""
    stopping = any(pod.stopping for pod in view.snapshot.pods)
    stopped = stop_timeout(view.with_status(status)) if stopping else None
    times = (wanted, stopped, *_loss(view), *(_ahead(view, status)))
    return min((time for time in times if time is not None and time > view.now), default=None)


def _ahead(view: View, status: DDPJobStatus) -> Iterator[datetime | None]:
    if status.finished:
        yield expiry(view.spec, status)
        return
    yield deadline(view.spec, status)
    yield start_deadline(view.spec, status)
    if view.snapshot.refusal is not None:
        yield view.snapshot.refusal.retry_at
    if status.attempt == view.status.attempt:
        yield gang_timeout(view)
        yield stuck_time(view)
        yield shrink_time(view)
        yield growth_time(view)
        yield finish_timeout(view)
        yield from (unstartable_at(pod) for pod in view.current.values())
        yield from lost_at(view).values()
        yield silent_at(view)
        yield view.quiet_at


def _loss(view: View) -> Iterator[datetime]:
    """When the pods that are being deleted count as lost, unless they go before."""
    nobody_asks = view.status.finished and view.spec.clean_pod_policy is CleanPodPolicy.NONE
    if nobody_asks and not view.snapshot.settings.force_delete_lost_pods:
        return
    yield from (pod.gone_by + LOST_AFTER for pod in view.active if pod.gone_by is not None)


def _since_first_place(view: View, seconds: float) -> datetime | None:
    """Before, the gang holds nothing; then a scheduler places one pod after the other, and all may yet come.

    In a gang that lives and waits for pods that replace others, since there are such pods, or since they are refused.
    """
    placed = (pod.scheduled_at or pod.created_at for pod in view.current.values() if pod.node is not None)
    since = min((time for time in placed if time is not None), default=None)
    for replaced in view.status.incarnations.exceptions:
        pod = view.current.get(replaced.rank)
        if since is None or (pod is None and view.snapshot.refusal is None):
            return None
        if pod is None or pod.node is None:
            since = max(since, (pod.created_at if pod else _since_restart(view)) or since)
    return _after(since, seconds)


def _since_restart(view: View) -> datetime | None:
    said = view.status.condition(ConditionType.RESTARTING)
    return said.last_transition_time if said else None


def _after(start: datetime | None, seconds: float | None) -> datetime | None:
    return start + timedelta(seconds=seconds) if start and seconds is not None else None
