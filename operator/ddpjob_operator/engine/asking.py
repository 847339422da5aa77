"""Whom to ask how a gang is doing."""

from dataclasses import dataclass

from .snapshot import Pod, Snapshot
from .supervision import is_silent
from .view import View


@dataclass(frozen=True, slots=True)
class Asked:
    """Where a supervisor serves its status, if there is one."""

    pod: str
    """The pod's name: the answer is about the gang that this one is of."""
    address: str
    port: int


def whom_to_ask(snapshot: Snapshot) -> Asked | None:
    """The status page that tells of the job's present gang; None where there can be none now."""
    first = View(snapshot).current.get(0)
    return _at(snapshot, first) if first is not None else None


def whom_else_to_ask(snapshot: Snapshot) -> Asked | None:
    """The status page of another supervisor, which knows whether rank 0's leads it; None where that one is heard."""
    view = View(snapshot)
    if not is_silent(view):
        return None
    others = (_at(snapshot, pod) for rank, pod in view.current.items() if rank > 0)
    return next((asked for asked in others if asked is not None), None)


def _at(snapshot: Snapshot, pod: Pod) -> Asked | None:
    status = snapshot.job.status
    if not pod.running or pod.address is None or status.status_port is None or status.finished:
        return None
    return Asked(pod.name, pod.address, status.status_port)
