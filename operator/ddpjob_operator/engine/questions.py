"""What has to be known before anything can be decided, and is not in a snapshot by itself: it costs a question."""

from .snapshot import Asked, Needs, Pod, Snapshot
from .supervision import is_silent, members_lost
from .view import View

MOST_NODES = 8
"""Where a rack goes down, a few of its nodes tell the story."""


def unmet(view: View) -> Needs:
    """What has still to be asked; what was asked in vain is not asked again, since that is an answer too.

    One answer may lead to another question, but at most four times: a pod is seen to be missing, rank 0's supervisor
    is silent, so that another one is listened to, and what that one says puts a node in question.
    """
    met = view.snapshot.answered
    # Alone, since all other questions are about pods: the list may have others.
    if _rests_on_absence(view) and not met.pods:
        return Needs(pods=True)
    supervisor, witness = _whom_to_ask(view), _whom_else_to_ask(view)
    return Needs(
        nodes=_nodes_in_question(view) - met.nodes,
        supervisor=supervisor if supervisor != met.supervisor else None,
        witness=witness if witness != met.witness else None,
    )


def _whom_to_ask(view: View) -> Asked | None:
    """The status page that tells of the job's present gang; None where there can be none now."""
    first = view.current.get(0)
    return _at(view.snapshot, first) if first is not None else None


def _whom_else_to_ask(view: View) -> Asked | None:
    """The status page of another supervisor, which knows whether rank 0's leads it; None where that one is heard."""
    if not is_silent(view):
        return None
    others = (_at(view.snapshot, pod) for rank, pod in view.current.items() if rank > 0)
    return next((asked for asked in others if asked is not None), None)


def _at(snapshot: Snapshot, pod: Pod) -> Asked | None:
    status = snapshot.job.status
    if not pod.running or pod.address is None or status.status_port is None or status.finished:
        return None
    return Asked(pod.name, pod.address, status.status_port)


def _rests_on_absence(view: View) -> bool:
    """Whether pods were seen and are not there now: the one thing that a watch may have missed."""
    return view.created and bool(view.missing) and not view.status.finished


def _nodes_in_question(view: View) -> frozenset[str]:
    """Nodes whose state would tell why pods are taken away, or not heard any more; at most a few of them.

    A pod that a taint drove away may have saved and ended before anybody looks: its node tells it from a lost one.
    Where we take the pods away ourselves, none is in question.
    """
    if view.winds_down:
        return frozenset()
    lost = members_lost(view)
    pods = view.current.values()
    taken = {pod.node for pod in pods if pod.deleting and (pod.active or pod.disruption)}
    unheard = {pod.node for pod in pods if pod.active and pod.rank in lost}
    return frozenset(sorted(filter(None, taken | unheard))[:MOST_NODES])
