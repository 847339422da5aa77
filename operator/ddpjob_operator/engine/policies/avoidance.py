"""Kubernetes nodes that a job avoids for a while, because they were lost or are broken."""

from collections.abc import Iterable
from datetime import timedelta
from itertools import islice

from ddpjob_operator.api import AvoidedNodeName, Cause
from ddpjob_operator.api.status import MAX_AVOIDED
from ddpjob_operator.engine.changes import StatusChanges
from ddpjob_operator.engine.snapshot import Pod
from ddpjob_operator.engine.view import View

from .verdict import Times

AVOIDED_FOR = timedelta(hours=1)
"""How long pods avoid a Kubernetes node."""

Useless = tuple[Pod, Cause | str | None]
"""A pod that could not be used on its Kubernetes node, and the cause, which is None if the pod never ran."""


def avoiding(view: View, pods: Iterable[Useless], *, at_most: int = MAX_AVOIDED) -> StatusChanges:
    """Adds the Kubernetes nodes of these useless pods to the status's avoided nodes; empty if nothing changes.

    Adds at most `at_most` nodes, the newest last. A node counts as broken if a device failed there, or if its pod was
    created when the node was already avoided.
    """
    known = {avoided.node_name: avoided for avoided in view.avoided}
    new: dict[str, AvoidedNodeName] = {}
    for pod, cause in pods:
        before = known.get(pod.node_name or "")
        broken = cause == Cause.DEVICE_FAILED or (before is not None and _came_later(pod, before))
        if pod.node_name is not None and (before is None or broken):
            required = broken and view.snapshot.settings.avoid_broken_nodes_seconds > 0
            until = view.now + AVOIDED_FOR
            new[pod.node_name] = AvoidedNodeName(
                node_name=pod.node_name, until=until, pod=pod.name, cause=cause, required=required
            )
    new = dict(islice(new.items(), at_most))
    kept = (avoided for avoided in view.avoided if avoided.node_name not in new)
    return {"avoided_node_names": (*kept, *new.values())[-MAX_AVOIDED:]} if new else {}


def returned(view: View) -> str:
    """Returns the message that pods could only be placed on avoided Kubernetes nodes; empty if none were."""
    back = _went_back(view)
    if not back:
        return ""
    (pod, avoided), more = back[0], f" and {len(back) - 1} more" if back[1:] else ""
    host = view.snapshot.settings.host
    return f"{view.called} {pod.node}{more} could only be placed on a {host} that is avoided: {_named(avoided)}"


def returned_due(view: View) -> Times:
    """When the first of the avoided Kubernetes nodes that pods run on will no longer be avoided."""
    yield min((avoided.until for _, avoided in _went_back(view)), default=None)


def ruled_out(view: View) -> str:
    """Lists the Kubernetes nodes on which no pod may be placed because they are broken; empty if there are none."""
    # Nodes whose hour of avoidance is over still count, because existing pods have an affinity that rules them out.
    return ", ".join(_named(avoided) for avoided in view.status.avoided_node_names if avoided.required)


def _went_back(view: View) -> list[tuple[Pod, AvoidedNodeName]]:
    """The pods that run on a Kubernetes node that was avoided when they were created, and still is."""
    known = {avoided.node_name: avoided for avoided in view.avoided}
    placed = ((pod, known.get(pod.node_name or "")) for pod in view.current.values()) if known else ()
    return [(pod, avoided) for pod, avoided in placed if avoided is not None and _came_later(pod, avoided)]


def _named(avoided: AvoidedNodeName) -> str:
    """Returns the name of a Kubernetes node, and why it is avoided."""
    return f"{avoided.node_name} ({avoided.cause})" if avoided.cause else avoided.node_name


def _came_later(pod: Pod, avoided: AvoidedNodeName) -> bool:
    """Whether a pod was created when its Kubernetes node was already avoided."""
    since = (avoided.until - AVOIDED_FOR).replace(microsecond=0)  # A pod's time of creation is in whole seconds.
    return pod.name != avoided.pod and pod.created_at is not None and pod.created_at >= since
