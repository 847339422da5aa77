"""Policies for the number of nodes: what the user requests, and what the cluster has room for."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Unpack

from ddpjob_operator.api import ConditionType
from ddpjob_operator.api.reasons import Reason
from ddpjob_operator.api.words import counted
from ddpjob_operator.engine.changes import StatusChanges
from ddpjob_operator.engine.conditions import Obstacle
from ddpjob_operator.engine.decision import Action, CreatePod
from ddpjob_operator.engine.incidents.price import JITTER, in_a_row, share
from ddpjob_operator.engine.manifests.init_containers import WAITING_FOR_MASTER
from ddpjob_operator.engine.snapshot import Refusal
from ddpjob_operator.engine.view import View, after

from .avoidance import avoiding
from .obstacles import awaited
from .steps import budget, delete, give_back, restarting, short_grace, stamped, start_again, wait_after
from .verdict import Times, Verdict

SETTLING = timedelta(seconds=5)
"""How long to wait before growing onto a Kubernetes node with room. The room may come from a pod of this very gang
whose end has not been reported yet."""

SLOWER = 3
"""All pods must run within scheduleTimeoutSeconds times this number, because volumes and images take longer than
scheduling."""

GIVES_BACK = "the gang gives up its pods, and tries again at growing intervals"

MOST_DOUBLINGS = 8
"""While the pods of each attempt are refused, the wait between attempts doubles this many times: from one second to
about four minutes."""


def resized(view: View) -> Verdict | None:
    """The gang starts again with another number of nodes, because its user or the available room demands it."""
    return _asked_for(view) or _shrunk(view) or _grown(view)


def resize_due(view: View) -> Times:
    """When an elastic gang will continue with the nodes that it has, or start again with more."""
    yield shrink_time(view)
    yield _growth_time(view)


def _asked_for(view: View) -> Verdict | None:
    """If the user changes the number of nodes, the gang saves, stops, and starts again with the new world size.

    This costs no restart. An elastic gang that may grow is left as it is until there is room.
    """
    wanted, elastic = view.spec.nodes, view.spec.elastic
    may_grow = elastic is not None and elastic.min_nodes <= view.nodes < wanted
    if wanted == view.nodes or may_grow:
        return None
    return _with_nodes(
        view, wanted, Reason.RESIZED, f"Resizing from {view.nodes} to {counted(wanted, 'node')}", grace=None
    )


def _shrunk(view: View) -> Verdict | None:
    """An elastic gang continues without the pods that there is no room for."""
    if not view.is_due(shrink_time(view)):
        return None
    waited = view.spec.elastic.shrink_after_seconds if view.spec.elastic else 0
    message = (
        f"{view.placed} of {counted(view.nodes, 'pod')} could be scheduled within {waited} s: continuing with these"
    )
    return _with_nodes(view, view.placed, Reason.SHRUNK, message, grace=short_grace(view))


def _grown(view: View) -> Verdict | None:
    """An elastic gang starts again with more pods when there is room for them."""
    if not view.is_due(_growth_time(view)):
        return None
    size = min(view.nodes + len(view.found), view.spec.nodes)
    return _with_nodes(view, size, Reason.GROWN, f"Resizing from {view.nodes} to {counted(size, 'node')}", grace=None)


def given_back(view: View) -> Verdict | None:
    """If some pods of a gang are not scheduled, or do not run, the gang deletes all its pods and tries again later.

    It does so immediately if it can never be complete, because it would hold its Kubernetes nodes for nothing.
    """
    refusal = _refused_for_good(view)
    if refusal is not None:
        message = f"{refusal.message}; {GIVES_BACK}"
        # Without this wait, a job without a backoff would keep creating pods and immediately deleting them.
        tries = min(budget(view).streak, MOST_DOUBLINGS)
        verdict = _give_back(view, refusal.message, least=timedelta(seconds=2.0**tries))
        return replace(verdict, message=message, blocked=Obstacle(refusal.reason, message))
    if view.is_due(gang_timeout(view)):
        said = f"{view.placed} of {counted(view.nodes, 'pod')} could be scheduled"
        return _give_back(view, f"{said} within {view.spec.schedule_timeout_seconds} s (scheduleTimeoutSeconds)")
    if not view.is_due(_stuck_time(view)):
        return None
    # Ranks that wait for rank 0 are not stuck because of their Kubernetes nodes. If all are stuck, none of the nodes
    # is to blame.
    waiting = [pod for pod in view.current_unsteady.values() if pod.active and not pod.running]
    blamed = [pod for pod in waiting if pod.waiting is None or pod.waiting.reason != WAITING_FOR_MASTER]
    avoided = avoiding(view, [(pod, None) for pod in blamed]) if len(blamed) < view.nodes else {}
    seconds = SLOWER * view.spec.schedule_timeout_seconds
    said = f"{awaited(view)}; not all pods were running within {seconds} s ({SLOWER} times scheduleTimeoutSeconds)"
    return _give_back(view, said, **avoided)


def _refused_for_good(view: View) -> Refusal | None:
    """Returns the refusal that keeps the gang incomplete even if all other pods end; None if there is none.

    Also None if the gang has no active pods, because then there is nothing to give back.
    """
    refusal, elastic = view.snapshot.refusal, view.spec.elastic
    if refusal is None or refusal.fits is None or not view.missing:
        return None
    fewest = elastic.min_nodes if elastic else view.nodes
    holds = any(pod.active for pod in view.current.values())
    return refusal if refusal.fits < fewest and holds else None


def _give_back(view: View, why: str, *, least: timedelta = timedelta(0), **changes: Unpack[StatusChanges]) -> Verdict:
    again = budget(view)
    again = in_a_row(again, again.streak + 1)
    wait = max(wait_after(view, again), least)
    message = f"{why}: stopping all pods, and trying again in {wait.total_seconds():.1f} s"
    fields: StatusChanges = {**changes, "budget": again}
    return give_back(view, Reason.GANG_INCOMPLETE, message, wait, **fields)


def give_back_due(view: View) -> Times:
    """When an incomplete gang will give back its Kubernetes nodes."""
    yield gang_timeout(view)
    yield _stuck_time(view)


def gang_timeout(view: View) -> datetime | None:
    """Returns when a gang with only some of its pods scheduled will give back its Kubernetes nodes.

    Adds to the spec's timeout a delay that differs between jobs and attempts. Otherwise two jobs that hold each
    other's missing nodes would give them back at the same moment, and then take the same nodes again.
    """
    return _since_first_place(view, _schedule_seconds(view)) if 0 < view.placed < view.nodes else None


def _stuck_time(view: View) -> datetime | None:
    """Returns when a gang will give back its Kubernetes nodes because all pods are scheduled, but some do not run.

    None while an init container of the template is running, because its downloads may take any amount of time.
    """
    waiting = [pod for pod in view.current_unsteady.values() if pod.active and not pod.running]
    if not waiting or view.placed < view.nodes or any(pod.waiting and pod.waiting.busy for pod in waiting):
        return None
    last = max((pod.scheduled_at for pod in view.current.values() if pod.scheduled_at), default=None)
    return after(last, SLOWER * _schedule_seconds(view))


def _schedule_seconds(view: View) -> float:
    key = f"{view.snapshot.job.metadata.uid}/{view.status.attempt}"
    return view.spec.schedule_timeout_seconds * (1 + JITTER * share(key))


def shrink_time(view: View) -> datetime | None:
    """Returns when an elastic gang will continue with only its scheduled pods."""
    elastic = view.spec.elastic
    if elastic is None or not elastic.min_nodes <= view.placed < view.nodes:
        return None
    return _since_first_place(view, elastic.shrink_after_seconds)


def _growth_time(view: View) -> datetime | None:
    """Returns when an elastic gang will start again with its scheduled reserves: soon if that makes it complete.

    None after a node has finished, because the others are about to finish, too.
    """
    elastic = view.spec.elastic
    found = [pod.scheduled_at or view.now for pod in view.found]
    if elastic is None or not found or view.succeeded or view.nodes >= view.spec.nodes:
        return None
    if view.nodes + len(found) >= view.spec.nodes:
        return max(found) + SETTLING
    # Each growth restarts the gang, so the gang waits for a while in order to grow by several nodes at once.
    return min(found) + max(SETTLING, timedelta(seconds=elastic.shrink_after_seconds))


def _since_first_place(view: View, seconds: float) -> datetime | None:
    """Returns the moment `seconds` after the first pod was scheduled, when the gang began to hold Kubernetes nodes.

    If a running gang waits for replacement pods, the time counts from the creation of these pods or, if that is
    refused, from the moment when the gang began to start again.
    """
    placed = (pod.scheduled_at or pod.created_at for pod in view.current.values() if pod.node_name is not None)
    since = min((time for time in placed if time is not None), default=None)
    for replaced in view.status.bookkeeping.incarnations.exceptions:
        pod = view.current.get(replaced.node)
        if since is None or (pod is None and view.snapshot.refusal is None):
            return None
        if pod is None or pod.node_name is None:
            since = max(since, (pod.created_at if pod else _since_restart(view)) or since)
    return after(since, seconds)


def _since_restart(view: View) -> datetime | None:
    restarting_since = view.status.condition(ConditionType.RESTARTING)
    return restarting_since.last_transition_time if restarting_since else None


def reconcile_reserves(view: View) -> tuple[Action, ...]:
    """Creates the reserves of a gang that may grow, and deletes superfluous reserves.

    A reserve that has failed is not recreated in this attempt. Once a node has finished, no reserves are wanted.
    """
    wanted = _wanted_beside(view)
    # Reserves run no trainer, so they are deleted without a grace period, which frees their places immediately.
    surplus = (pod for node, pod in view.reserves.items() if node not in wanted)
    if view.refused:
        return delete(view, surplus, grace=0)
    made = (CreatePod(node, view.snapshot.job, placement=view.placement, reserve=True) for node in lacking(view))
    return (*delete(view, surplus, grace=0), *made)


def lacking(view: View) -> tuple[int, ...]:
    """Returns the nodes whose reserves are wanted but do not exist."""
    return tuple(node for node in _wanted_beside(view) if node not in view.reserves)


def _wanted_beside(view: View) -> range:
    may_grow = view.spec.elastic and not view.succeeded
    return range(view.nodes, view.spec.nodes if may_grow else view.nodes)


def _with_nodes(view: View, nodes: int, reason: Reason, message: str, *, grace: int | None) -> Verdict:
    return start_again(view, restarting(reason, message), message, grace=grace, **_sized(view, nodes))


def _sized(view: View, nodes: int) -> StatusChanges:
    unchanged: StatusChanges = {
        # The NetworkPolicy that opens the status port is replaced only after a suspension.
        "status_port": view.status.network.status_port,
        # These two fields stay as they are, even if the operator now counts other resources as GPUs.
        "procs_per_node": view.status.procs_per_node,
        "backend": view.status.backend,
        "budget": budget(view),
    }
    return {**stamped(view), **unchanged, "nodes": nodes}
