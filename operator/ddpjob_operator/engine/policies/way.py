"""Policies for gangs that compete for Kubernetes nodes: one gang comes first, and the others give way."""

import json
from datetime import datetime, timedelta

from ddpjob_operator.api import ConditionType, DDPJob
from ddpjob_operator.api.reasons import Reason
from ddpjob_operator.api.resources import EVERYWHERE
from ddpjob_operator.api.words import counted
from ddpjob_operator.engine.decision import InLine
from ddpjob_operator.engine.manifests.affinity import REQUIRED
from ddpjob_operator.engine.snapshot import Ahead, Pod
from ddpjob_operator.engine.view import View, after

from .size import shrink_time
from .steps import give_back
from .verdict import Times, Verdict

TURN_SECONDS = 15
"""A gang gives way after nothing has changed for this long. Then each job in line may try for this long before the
next job does. The Cluster Autoscaler looks for unschedulable pods every ten seconds, and the scheduler may take as
long before it retries the pods that should get the freed nodes."""

UNSCHEDULABLE, GATED = "Unschedulable", "SchedulingGated"
"""Why a pod has no Kubernetes node: the scheduler has found none, or a scheduling gate keeps it from trying."""


def yields_to_gang_ahead(view: View) -> Verdict | None:
    """A gang that holds some Kubernetes nodes, but cannot get the others, gives way to a gang ahead of it in line."""
    ahead = view.snapshot.ahead
    if ahead is None or not view.is_due(yields_at(view)) or view.snapshot.scales_up:
        return None
    found, wait = f"{view.placed} of {view.pods(view.nodes)} could be scheduled", _turn(view, ahead)
    again = f"trying again when the job is first in line, or in {wait.total_seconds():.0f} s if nothing changes"
    message = f"{found}, with {counted(ahead.jobs, 'job')} ahead in line: stopping all pods, and {again}"
    return give_back(view, Reason.GAVE_WAY, message, wait)


def yielding_due(view: View) -> Times:
    """When the gang will give way if nothing changes."""
    yield yields_at(view)


def yields_at(view: View) -> datetime | None:
    """Returns when a gang will give way unless anything changes; None if it need not, or if a change is under way.

    A gang that waits for replacement pods, or is about to shrink, keeps its Kubernetes nodes.
    """
    lacking = lacking_nodes(view)
    # True if the scheduler finds no node for any of these pods, and neither preemption nor an autoscaler is about to
    # make room.
    hopeless = all(pod.waiting and pod.waiting.reason == UNSCHEDULABLE and not pod.nominated for pod in lacking)
    if view.snapshot.ahead is None or not lacking or not view.placed or not hopeless:
        return None
    if view.status.bookkeeping.incarnations.exceptions or shrink_time(view) is not None:
        return None
    times = (time for pod in view.current.values() for time in (pod.created_at, pod.scheduled_at))
    last = max((time for time in times if time is not None), default=None)
    return after(last, TURN_SECONDS)


def lacking_nodes(view: View) -> tuple[Pod, ...]:
    """Returns the present pods that are not scheduled yet."""
    return tuple(pod for pod in view.current_unsteady.values() if pod.node_name is None)


def wait_ends(view: View) -> datetime | None:
    """Returns when the next attempt begins; None if it need not wait, or has begun.

    A gang that gave way waits until it is first in line. But the first gang may never fit, so if the line has not
    moved for a while, the others may try as well, one after the other.
    """
    until, ahead = view.status.backoff_until, view.snapshot.ahead
    if view.created or until is None:
        return None
    if not _has_given_way(view):
        return until
    if view.current or ahead is None:
        return None
    return max(until, ahead.moved_at + _turn(view, ahead))


def _turn(view: View, ahead: Ahead) -> timedelta:
    """Returns how long the jobs ahead in line may try before this job does."""
    return timedelta(seconds=min(TURN_SECONDS * ahead.jobs, view.spec.schedule_timeout_seconds))


def _has_given_way(view: View) -> bool:
    created = view.status.condition(ConditionType.CREATED)
    return created is not None and created.reason == Reason.GAVE_WAY


def in_line(view: View) -> InLine | None:
    """Returns the job's place in the line for Kubernetes nodes; None if it needs none, is ending, or is blocked."""
    if view.winds_down or view.status.is_true(ConditionType.BLOCKED):
        return None
    if not all(pod.waiting is not None and pod.waiting.reason == GATED for pod in lacking_nodes(view)):
        return InLine(found=view.placed)
    return InLine(away=True) if _has_given_way(view) else None


def kind_of_kubernetes_nodes(job: DDPJob) -> str:
    """Returns a key for the kind of Kubernetes nodes that a job requests. Jobs with the same key share one line."""
    pod, resources = job.spec.template["spec"], job.spec.trainer.get("resources", {})
    affinity = pod.get("affinity", {}).get("nodeAffinity", {}).get(REQUIRED)
    asked = {*resources.get("requests", {}), *resources.get("limits", {})}
    return json.dumps([pod.get("nodeSelector"), affinity, sorted(asked - EVERYWHERE)], sort_keys=True)
