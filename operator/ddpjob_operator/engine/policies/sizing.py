"""How many nodes the gang has: what the user asks for, and what the cluster has room for."""

from typing import Any

from ddpjob_operator.api.reasons import Reason
from ddpjob_operator.api.words import counted
from ddpjob_operator.engine.decision import Action, CreatePod, Event
from ddpjob_operator.engine.snapshot import Pod
from ddpjob_operator.engine.timers import SLOWER, gang_timeout, growth_time, shrink_time, stuck_time
from ddpjob_operator.engine.view import View
from ddpjob_operator.engine.waiting import WAITING_FOR_MASTER

from .hindsight import avoiding
from .steps import budget, delete, not_up, restarting, short_grace, stamped, start_again, wait_after
from .verdict import Verdict


def resized(view: View) -> Verdict | None:
    """Another number of nodes is another world: the gang saves, stops, and starts again with it, at no cost.

    An elastic gang that is smaller than it may be is left to grow when there is room.
    """
    wanted, elastic = view.spec.nodes, view.spec.elastic
    may_grow = elastic is not None and elastic.min_nodes <= view.nodes < wanted
    if wanted == view.nodes or may_grow:
        return None
    return _with_nodes(view, wanted, Reason.RESIZED, f"From {view.nodes} to {counted(wanted, 'node')}", grace=None)


def shrunk(view: View) -> Verdict | None:
    """An elastic gang some of whose pods find no place goes on with the others."""
    limit = shrink_time(view)
    if limit is None or view.now < limit:
        return None
    waited = view.spec.elastic.shrink_after_seconds if view.spec.elastic else 0
    message = f"{view.placed} of {counted(view.nodes, 'pod')} found nodes within {waited} s: going on with those"
    return _with_nodes(view, view.placed, Reason.SHRUNK, message, grace=short_grace(view))


def grown(view: View) -> Verdict | None:
    """An elastic gang for whose missing pods there is room starts again with them."""
    limit = growth_time(view)
    if limit is None or view.now < limit:
        return None
    size = min(view.nodes + len(view.found), view.spec.nodes)
    return _with_nodes(view, size, Reason.GROWN, f"From {view.nodes} to {counted(size, 'node')}", grace=None)


def gang_incomplete(view: View) -> Verdict | None:
    """A gang that lacks nodes, or cannot run on one, gives back what it holds and tries again after a while."""
    limit, stuck = gang_timeout(view), stuck_time(view)
    if limit is not None and view.now >= limit:
        said = f"{view.placed} of {counted(view.nodes, 'pod')} found nodes"
        return _give_back(view, f"{said} within {view.spec.schedule_timeout_seconds} s (scheduleTimeoutSeconds)")
    if stuck is None or view.now < stuck:
        return None
    blamed = [pod for pod in view.current.values() if pod.active and not pod.running and not _waits_for_master(pod)]
    avoided = avoiding(view, tuple(pod.node for pod in blamed if pod.node)) if len(blamed) < view.nodes else ()
    seconds = SLOWER * view.spec.schedule_timeout_seconds
    said = f"{view.status.message}; not all came to run within {seconds} s ({SLOWER} times scheduleTimeoutSeconds)"
    return _give_back(view, said, **({"avoided_nodes": avoided} if avoided else {}))


def _waits_for_master(pod: Pod) -> bool:
    return pod.waiting is not None and pod.waiting.reason == WAITING_FOR_MASTER


def _give_back(view: View, why: str, **fields: Any) -> Verdict:
    again = budget(view)
    again = again.model_copy(update={"streak": again.streak + 1})
    wait = wait_after(view, again)
    message = f"{why}: given back, and tried again in {wait.total_seconds():.1f} s"
    says = not_up(Reason.GANG_INCOMPLETE, message)
    verdict = start_again(view, says, message, grace=short_grace(view), wait=wait, budget=again, **fields)
    event = Event(warning=True, reason=Reason.GANG_INCOMPLETE, message=message)
    return Verdict(verdict.status, message, verdict.actions, verdict.wake_at, events=(event,))


def look_out(view: View) -> tuple[Action, ...]:
    """Pods of a gang that is smaller than it may be, which wait for the places that it lacks; and none too many.

    One that has failed is not made again in this attempt, and none is wanted any more once a rank has finished.
    """
    wanted = _wanted_beside(view)
    surplus = (pod for rank, pod in view.reserves.items() if rank not in wanted)
    refusal = view.snapshot.refusal
    if refusal is not None and view.now < refusal.retry_at:
        return delete(view, surplus, grace=0)
    made = (CreatePod(rank, view.snapshot.job, reserve=True) for rank in lacking(view))
    return (*delete(view, surplus, grace=0), *made)


def lacking(view: View) -> tuple[int, ...]:
    """The ranks of those that are to look out for a place and do not exist."""
    return tuple(rank for rank in _wanted_beside(view) if rank not in view.reserves)


def _wanted_beside(view: View) -> range:
    may_grow = view.spec.elastic and not view.succeeded
    return range(view.nodes, view.spec.nodes if may_grow else view.nodes)


def _with_nodes(view: View, nodes: int, reason: Reason, message: str, *, grace: int | None) -> Verdict:
    # The NetworkPolicy lets in who asks at that port, and is replaced after a suspension alone.
    fixed = {**stamped(view), "status_port": view.status.status_port, "nodes": nodes, "budget": budget(view)}
    return start_again(view, restarting(reason, message), message, grace=grace, **fixed)
