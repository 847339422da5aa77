"""Permits broken Kubernetes nodes again if a gang finds no others within a while."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta

from ddpjob_operator.api import AvoidedNodeName, ConditionType
from ddpjob_operator.api.reasons import Reason
from ddpjob_operator.engine.conditions import Say
from ddpjob_operator.engine.decision import Event
from ddpjob_operator.engine.snapshot import Pod
from ddpjob_operator.engine.view import View, after

from .avoidance import ruled_out
from .size import gang_timeout
from .steps import give_back, replace_alone, short_grace
from .verdict import Times, Verdict
from .way import GATED, lacking_nodes, yields_at


def lifted(view: View) -> Verdict | None:
    """If pods find only Kubernetes nodes that are broken, the whole gang may be placed on these nodes again.

    Pods are recreated for this, at no cost: only the unscheduled pods if the others have run and wait for them, or
    else all pods.
    """
    if not view.is_due(_lifted_at(view)):
        return None
    lacking, status = _in_vain(view), view.status
    who = f"{view.called.capitalize()} {lacking[0].node}{f' and {len(lacking) - 1} more' if lacking[1:] else ''}"
    waited = (view.now - min(pod.created_at or view.now for pod in lacking)).total_seconds()
    again = f"pods may be placed on {ruled_out(view)} again"
    message = f"{who} found no other Kubernetes node within {waited:.0f} s: {again}"
    reason, avoided = Reason.AVOIDANCE_LIFTED, tuple(_only_preferred(view))
    if not status.bookkeeping.incarnations.exceptions:
        return give_back(view, reason, message, timedelta(0), avoided_node_names=avoided)
    nodes, says = (
        (pod.node for pod in lacking),
        (Say(ConditionType.CREATED, value=False, reason=reason, message=message),),
    )
    grace, until = short_grace(view), status.backoff_until
    verdict = replace_alone(view, nodes, says, message, grace=grace, until=until, avoided_node_names=avoided)
    return replace(verdict, events=(Event(warning=True, reason=reason, message=message),))


def lifting_due(view: View) -> Times:
    """When the gang may use broken Kubernetes nodes again."""
    yield _lifted_at(view)


def _only_preferred(view: View) -> Iterator[AvoidedNodeName]:
    """Yields the avoided Kubernetes nodes, none of which is ruled out any more."""
    return (avoided.model_copy(update={"required": False}) for avoided in view.avoided)


def _lifted_at(view: View) -> datetime | None:
    """Returns when the gang stops waiting for Kubernetes nodes that are not broken; None if it is not waiting.

    This happens before the gang gives back its nodes or gives way to another gang, because avoiding broken nodes may
    be the only reason why the gang is incomplete.
    """
    lacking = _in_vain(view) if ruled_out(view) else ()
    first = min((pod.created_at for pod in lacking if pod.created_at), default=None)
    patience = after(first, view.snapshot.settings.avoid_broken_nodes_seconds)
    yielding = None if view.snapshot.scales_up else yields_at(view)
    return min(filter(None, (patience, gang_timeout(view), yielding)), default=None) if lacking else None


def _in_vain(view: View) -> tuple[Pod, ...]:
    """Returns the pods that the scheduler finds no node for, or does not report on."""
    lacking = (pod for pod in lacking_nodes(view) if not pod.nominated)
    return tuple(pod for pod in lacking if pod.waiting is None or pod.waiting.reason != GATED)
