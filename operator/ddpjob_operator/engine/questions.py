"""What a decision needs to know and a snapshot does not hold unless it is asked for."""

from .policies.way import lacking_nodes, patience_ends
from .snapshot import Asked, Needs, Pod, Snapshot
from .supervision import is_silent, members_lost
from .view import View

MOST_MACHINES = 8
"""If a whole rack goes down, a few of its Kubernetes nodes are enough to tell why."""


MOST_DOMAINS = 64
"""Those of further nodes are asked for in the next round."""


def unmet(view: View) -> Needs:
    """What still has to be asked. A question that got no answer is not repeated: that is an answer too.

    One answer may lead to another question, but at most four times: a pod turns out to be missing, rank 0's
    supervisor is silent, so another supervisor is asked, and its answer raises a question about a node.
    """
    met = view.snapshot.answered
    # By itself, since all other questions are about pods: the new list may hold different ones.
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
    """The status page that reports on the job's present gang; None if there can be none now."""
    first = view.current.get(0)
    return _at(view.snapshot, first) if first is not None else None


def _whom_else_to_ask(view: View) -> Asked | None:
    """The status page of another supervisor, which knows if rank 0's still leads it; None if rank 0's answers."""
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
    """A pod for which an autoscaler may add a node, though its gang is about to give way; None if it is not."""
    return lacking_nodes(view)[0].uid if view.is_due(patience_ends(view)) else None


def _rests_on_absence(view: View) -> bool:
    """Whether pods that existed seem to be missing: the watch may have missed something."""
    return view.created and bool(view.missing) and not view.status.finished


def _flavors_in_question(view: View) -> frozenset[str]:
    """The kinds of Kubernetes nodes that pods have to be on which may be created now."""
    if view.admission is None or view.winds_down:
        return frozenset()
    # An elastic gang may create reserves at any time.
    complete = view.created and not view.missing and view.spec.elastic is None
    return frozenset() if complete else view.admission.flavors


def _machines_to_locate(view: View) -> frozenset[str]:
    """Kubernetes nodes of pods that are still to be told where they are."""
    names = {pod.node_name for pod in view.unlocated if pod.node_name}
    return frozenset(sorted(names)[:MOST_DOMAINS])


def _nodes_in_question(view: View) -> frozenset[str]:
    """Kubernetes nodes whose state would explain why pods are taken away or no longer answer; a few of them.

    A pod evicted by a taint may have saved and ended before anybody looks: only its node's state tells it from a
    lost one. If we take the pods away ourselves, none is in question.
    """
    if view.winds_down:
        return frozenset()
    lost = members_lost(view)
    taken = {
        pod.node_name for pod in view.current_unsteady.values() if pod.deleting and (pod.active or pod.disruption)
    }
    unheard = {pod.node_name for pod in (view.current[node] for node in lost) if pod.active}
    return frozenset(sorted(filter(None, taken | unheard))[:MOST_MACHINES])
