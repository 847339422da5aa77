"""Whom to ask how a gang is doing."""

from dataclasses import dataclass

from .snapshot import Snapshot
from .view import View


@dataclass(frozen=True, slots=True)
class Asked:
    """Where rank 0's supervisor serves its status, if there is one."""

    pod: str
    """The pod's name: the answer is about the gang that this one is of."""
    address: str
    port: int


def whom_to_ask(snapshot: Snapshot) -> Asked | None:
    """The status page that tells of the job's present gang; None where there can be none now."""
    view, status = View(snapshot), snapshot.job.status
    first = view.current.get(0)
    if first is None or not first.running or first.address is None or status.status_port is None or status.finished:
        return None
    return Asked(first.name, first.address, status.status_port)
