"""What to do and what to say: the engine's answer to a snapshot.

An action that creates a pod only names the pod. The adapter builds the manifest when it sends the request: the
manifests of all pods of a large job together take hundreds of MiB and seconds of work.
"""

from dataclasses import dataclass
from datetime import datetime

from ddpjob_operator.api import DDPJob, DDPJobStatus

from .manifests.children import build_pod, build_reserve
from .manifests.names import present_pod_name
from .owned import OwnedKind
from .snapshot import NO_NEEDS, Manifest, Needs, Placement


@dataclass(frozen=True, slots=True)
class Create:
    """Create an object that belongs to the job. If it exists already, that is success."""

    kind: OwnedKind
    manifest: Manifest
    """Lacks what only the adapter can fill in: the value of a Secret, or of a priority class."""

    @property
    def name(self) -> str:
        """The object's name."""
        return str(self.manifest["metadata"]["name"])


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete an object that belongs to the job. If it is gone already, that is success."""

    kind: OwnedKind
    name: str


@dataclass(frozen=True, slots=True)
class Resize:
    """Change the number of nodes of a Kueue Workload. While the Workload holds quota, the number can only go down."""

    nodes: int
    least: int | None
    """The fewest nodes that an elastic job accepts; None: it accepts no fewer than `nodes`."""


@dataclass(frozen=True, slots=True)
class Tell:
    """Set conditions of a Kueue Workload."""

    conditions: tuple[tuple[str, bool, str, str], ...]
    """For each condition: its type, whether it is true, its reason and its message."""
    releases: bool = False
    """Whether the quota is given back."""


@dataclass(frozen=True, slots=True)
class Patch:
    """Change an object that belongs to the job; fields that `change` does not name keep their values."""

    kind: OwnedKind
    name: str
    change: Resize | Tell


@dataclass(frozen=True, slots=True)
class CreatePod:
    """Create the present pod of a node. If it exists already, that is success."""

    node: int
    job: DDPJob
    """The job, with the status that authorises the action."""
    living: tuple[str, ...] = ()
    """Addresses of the gang's pods that already run."""
    placement: Placement | None = None
    """What the job's admission by its queue adds to the pod; None without a queue."""
    reserve: bool = False
    """Whether the pod is a reserve: it does not train, but waits for room that an elastic gang can grow into."""

    @property
    def name(self) -> str:
        """The pod's name."""
        return present_pod_name(self.job, self.node)

    def build(self) -> Manifest:
        """The pod's manifest."""
        if self.reserve:
            return build_reserve(self.job, self.node, self.placement)
        return build_pod(self.job, self.node, self.living, self.placement)


@dataclass(frozen=True, slots=True)
class DeletePod:
    """Stop and remove the pod of this name, if it still has this uid. If it is gone already, that is success."""

    name: str
    uid: str
    grace_period_seconds: int | None
    """Seconds between SIGTERM and SIGKILL; None: the pod's own."""


@dataclass(frozen=True, slots=True)
class StopPod:
    """Stop a pod within its own grace period, and keep it with its logs. If it is gone already, that is success."""

    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class TellDomain:
    """Write a pod's topology domain into its annotation. If the pod is gone already, that is success."""

    name: str
    uid: str
    domain: str
    """The domain's name; empty if the pod's Kubernetes node is in none."""


@dataclass(frozen=True, slots=True)
class MarkFinished:
    """Note in the job's metadata that it has finished, because a job restored from a backup may lack its status."""

    mark: str
    """The state that the job ended in, and a digest of its name, because a copy of the job has the same metadata."""


@dataclass(frozen=True, slots=True)
class DeleteJob:
    """Delete the job itself, with all that belongs to it, if it has not changed since it was read."""


Action = Create | Delete | Patch | CreatePod | DeletePod | StopPod | TellDomain | MarkFinished | DeleteJob


@dataclass(frozen=True, slots=True)
class Event:
    """A Kubernetes event: something that a person wants to know."""

    warning: bool
    reason: str
    """The type of the condition that became true, or the reason of an event that no condition causes."""
    message: str


@dataclass(frozen=True, slots=True)
class InLine:
    """A job's place in the line for Kubernetes nodes."""

    found: int = 0
    """How many of its nodes have a scheduled pod, or no longer need a pod."""
    away: bool = False
    """Whether it gave way to a job ahead, and has no pods until it may try again."""


@dataclass(frozen=True, slots=True)
class Decision:
    """A round's outcome, carried out in this order: status, actions, events.

    So a status holds only what has already been observed or what authorises the actions that follow, and no action is
    carried out unless the status that authorises it has been written.
    """

    status: DDPJobStatus | None = None
    """The whole new status; None when nothing changed."""
    actions: tuple[Action, ...] = ()
    events: tuple[Event, ...] = ()
    wake_at: datetime | None = None
    """When to look again even if nothing happens."""
    can_wait: bool = False
    """Whether nothing in the status is urgent: it may be written a little later, together with what comes next."""
    in_line: InLine | None = None
    """The job's place in the line for Kubernetes nodes from now on; None: it is not in the line."""
    needs: Needs = NO_NEEDS
    """What the adapter has to find out first. If there is anything, the rest of the decision is empty."""

    @property
    def empty(self) -> bool:
        """Whether there is nothing to do or say."""
        return self.status is None and not self.actions and not self.events
