"""Gangs that compete for nodes: of those that lack some, one comes first, and the others give way to it."""

from datetime import datetime, timedelta

from ddpjob_operator.api import ConditionType
from ddpjob_operator.api.reasons import Reason
from ddpjob_operator.engine.decision import InLine
from ddpjob_operator.engine.snapshot import Pod
from ddpjob_operator.engine.view import View, after

from .size import shrink_time
from .steps import budget, give_back
from .verdict import Times, Verdict

PATIENCE_SECONDS = 15
"""How long nothing may change before a gang gives way: the Cluster Autoscaler looks every ten seconds for pods that
lack nodes. And how long it then stays away: the scheduler may take ten seconds to give the nodes to the others."""

MOST_DOUBLINGS = 32


def gave_way(view: View) -> Verdict | None:
    """A gang that holds nodes and can get no more for now gives way to one that comes first."""
    limit = patience_ends(view)
    if limit is None or view.now < limit or view.snapshot.scales_up:
        return None
    said = f"{view.placed} of {view.pods(view.nodes)} found nodes, and a job that comes first lacks nodes too"
    stay_away = timedelta(seconds=PATIENCE_SECONDS)
    return give_back(view, Reason.GAVE_WAY, said, when="once that job has its nodes, or in", at_least=stay_away)


def gave_way_due(view: View) -> Times:
    """When its patience ends."""
    yield patience_ends(view)


def patience_ends(view: View) -> datetime | None:
    """When a gang gives way unless anything changes; None if it does not have to, or something is about to change.

    The more often it has given back nodes in a row the later, up to scheduleTimeoutSeconds: the job that comes first
    may be one that cannot be helped. A gang that has run and waits for single pods keeps what it holds, and so does
    one that is about to shrink.
    """
    lacking = lacking_nodes(view)
    if not view.snapshot.behind or not lacking or not view.placed or not all(map(_is_hopeless, lacking)):
        return None
    if view.status.incarnations.exceptions or shrink_time(view) is not None:
        return None
    doubled = PATIENCE_SECONDS * 2 ** min(budget(view).streak, MOST_DOUBLINGS)
    times = (time for pod in view.current.values() for time in (pod.created_at, pod.scheduled_at))
    last = max((time for time in times if time is not None), default=None)
    return after(last, min(doubled, view.spec.schedule_timeout_seconds))


def lacking_nodes(view: View) -> tuple[Pod, ...]:
    """The present pods that wait for a node."""
    return tuple(pod for pod in view.current.values() if pod.node is None)


def _is_hopeless(pod: Pod) -> bool:
    """Whether the scheduler says that only others can make room for a pod, and nobody does yet."""
    return pod.waiting is not None and pod.waiting.for_a_node and not pod.nominated


def may_return(view: View) -> bool:
    """Whether a gang that gave way need not stay away: it comes first, nobody else lacks nodes, or it is back."""
    return _has_given_way(view) and (bool(view.current) or not view.snapshot.behind)


def _has_given_way(view: View) -> bool:
    said = view.status.condition(ConditionType.CREATED)
    return said is not None and said.reason == Reason.GAVE_WAY


def in_line(view: View) -> InLine | None:
    """How a job stands in line for nodes; not at all if it is ending, or something else keeps it from running."""
    if view.winds_down or view.status.is_true(ConditionType.BLOCKED):
        return None
    if not all(pod.waiting is not None and pod.waiting.gated for pod in lacking_nodes(view)):
        return InLine.LACKING
    return InLine.AWAY if _has_given_way(view) else None
