"""What a decision needs to know, but a snapshot contains only on request."""

from .policies.way import lacking_nodes, yields_at
from .snapshot import Asked, Needs, Pod, Snapshot
from .supervision import is_silent, members_lost
from .view import View

MOST_MACHINES = 8
"""The most Kubernetes nodes to ask about: if a whole rack goes down, a few nodes are enough to show why."""


MOST_DOMAINS = 64
"""The most Kubernetes nodes to locate in one round; the others follow in the next."""


def unmet(view: View) -> Needs:
    """What still has to be asked. A question that got no answer is not repeated: the decision is made without it.

    One answer may lead to another question, but at most four times: a pod turns out to be missing, rank 0's
    supervisor is silent, so another supervisor is asked, and its answer raises a question about a Kubernetes node.
    """
    met = view.snapshot.answered
    # This is asked alone. All other questions are about pods, and the fresh list may contain different pods.
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
    """Rank 0's supervisor, which reports on the present gang; None if it cannot be asked now."""
    first = view.current.get(0)
    return _at(view.snapshot, first) if first is not None else None


def _whom_else_to_ask(view: View) -> Asked | None:
    """Another supervisor, which reports whether rank 0's still leads it; None if rank 0's answers."""
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
    """The uid of a pod for which an autoscaler may be adding a node, if its gang is about to give way; else None."""
    return lacking_nodes(view)[0].uid if view.is_due(yields_at(view)) else None


def _rests_on_absence(view: View) -> bool:
    """Whether pods that existed are missing from the snapshot, and this matters: a watch may have missed an event.

    If the operator itself takes the pods away, a missing pod matters only when no pod seems to be left.
    """
    if view.status.finished or (view.winds_down and view.active):
        return False
    return view.created and bool(view.missing)


def _flavors_in_question(view: View) -> frozenset[str]:
    """The flavors of the pods that may be created now."""
    if view.admission is None or view.winds_down:
        return frozenset()
    # An elastic gang may create reserves at any time.
    complete = view.created and not view.missing and view.spec.elastic is None
    return frozenset() if complete else view.admission.flavors


def _machines_to_locate(view: View) -> frozenset[str]:
    """Kubernetes nodes of the pods whose topology domain still has to be found out."""
    names = {pod.node_name for pod in view.unlocated if pod.node_name}
    return frozenset(sorted(names)[:MOST_DOMAINS])


def _nodes_in_question(view: View) -> frozenset[str]:
    """Some Kubernetes nodes whose state would explain why pods are taken away or no longer answer.

    A pod that a taint evicts may have saved and ended before anybody looks: only the state of its Kubernetes node
    tells that eviction from a loss. If the operator itself takes the pods away, no node is in question.
    """
    if view.winds_down:
        return frozenset()
    lost = members_lost(view)
    taken = {
        pod.node_name for pod in view.current_unsteady.values() if pod.deleting and (pod.active or pod.disruption)
    }
    missed = {pod.node_name for pod in (view.current[node] for node in lost) if pod.active}
    return frozenset(sorted(filter(None, taken | missed))[:MOST_MACHINES])
