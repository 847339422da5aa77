"""What a screen shows of a pod."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class PodSeen:
    """A pod of a job's present attempt, or a node's process on this machine. Times are None until then."""

    node: int
    """The node's number."""
    name: str
    node_name: str = ""
    """The Kubernetes node that it is on; empty if there is none yet."""
    state: str = ""
    """What its trainer does, in one word: `Running`, `ContainerCreating`, `Failed`."""
    created: datetime | None = None
    scheduled: datetime | None = None
    begun: datetime | None = None
    """When its first container began, which may be an init container."""
