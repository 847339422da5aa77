"""Determines which further facts a decision needs. A snapshot contains these facts only on request."""

from .policies.way import lacking_nodes, yields_at
from .snapshot import Asked, Needs, Pod, Snapshot
from .supervision import is_silent, members_lost
from .view import View

MOST_MACHINES = 8
"""The most Kubernetes nodes to look up. If a whole rack goes down, a few of its nodes are enough to show why."""


MOST_DOMAINS = 64
"""The most Kubernetes nodes whose topology domain is looked up in one round. The others follow in later rounds."""


def unmet(view: View) -> Needs:
    """Returns the facts that still have to be looked up.

    Each fact is looked up only once: if that fails, the decision is made without it. A new fact may make another
    necessary, in up to four steps: a fresh list shows that a pod is missing, rank 0's supervisor does not answer, so
    another supervisor is asked, and its report makes the state of a Kubernetes node necessary.
    """
    met = view.snapshot.answered
    # The list of pods comes first, because all other facts are about pods and the fresh list may contain others.
    if _rests_on_absence(view) and not met.pods:
        return Needs(pods=True)
    supervisor, witness = _whom_to_ask(view), _whom_else_to_ask(view)
    scale_up = _pod_in_question(view)
    return Needs(
        node_names=_nodes_in_question(view) - met.node_names,
        domains=_machines_to_locate(view) - met.domains,
        flavors=_flavors_in_question(view) - met.flavors,
        supervisor=supervisor if supervisor != met.supervisor else None,
        witness=witness if witness != met.witness else None,
        scale_up=scale_up if scale_up != met.scale_up else None,
    )


def _whom_to_ask(view: View) -> Asked | None:
    """Returns rank 0's supervisor, which reports on the present gang; None if it cannot be asked now."""
    first = view.current.get(0)
    return _at(view.snapshot, first) if first is not None else None


def _whom_else_to_ask(view: View) -> Asked | None:
    """Returns a supervisor to ask whether rank 0's supervisor still leads it; None if rank 0's supervisor answers."""
    if not is_silent(view):
        return None
    others = (_at(view.snapshot, pod) for node, pod in view.current.items() if node > 0)
    return next((asked for asked in others if asked is not None), None)


def _at(snapshot: Snapshot, pod: Pod) -> Asked | None:
    status = snapshot.job.status
    if not pod.running or pod.address is None or status.network.status_port is None or status.finished:
        return None
    return Asked(pod.name, pod.address, status.network.status_port)


def _pod_in_question(view: View) -> str | None:
    """Returns the uid of a pod that an autoscaler may be adding a node for, if its gang is about to give way."""
    return lacking_nodes(view)[0].uid if view.is_due(yields_at(view)) else None


def _rests_on_absence(view: View) -> bool:
    """True if the decision depends on pods being missing, which is uncertain, because a watch may miss events.

    If the operator itself is removing the pods, missing pods matter only when no pod seems to be left.
    """
    if view.status.finished or (view.winds_down and view.active):
        return False
    return view.created and bool(view.missing)


def _flavors_in_question(view: View) -> frozenset[str]:
    """Returns the flavors of the pods that may be created now."""
    if view.admission is None or view.winds_down:
        return frozenset()
    # An elastic gang may create reserves at any time.
    complete = view.created and not view.missing and view.spec.elastic is None
    return frozenset() if complete else view.admission.flavors


def _machines_to_locate(view: View) -> frozenset[str]:
    """Returns the Kubernetes nodes of the pods whose topology domain is not known yet."""
    names = {pod.node_name for pod in view.unlocated if pod.node_name}
    return frozenset(sorted(names)[:MOST_DOMAINS])


def _nodes_in_question(view: View) -> frozenset[str]:
    """Returns Kubernetes nodes whose state may explain why pods are being deleted or no longer answer.

    A pod that is evicted by a taint may save and end before the operator looks. Then only the state of its Kubernetes
    node shows whether it was evicted or lost. If the operator itself removes the pods, there is nothing to explain.
    """
    if view.winds_down:
        return frozenset()
    lost = members_lost(view)
    taken = {
        pod.node_name for pod in view.current_unsteady.values() if pod.deleting and (pod.active or pod.disruption)
    }
    missed = {pod.node_name for pod in (view.current[node] for node in lost) if pod.active}
    return frozenset(sorted(filter(None, taken | missed))[:MOST_MACHINES])
