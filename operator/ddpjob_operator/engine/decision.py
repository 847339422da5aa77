"""The engine's decision on a snapshot: actions, a new status and events.

An action that creates a pod only names the pod. The adapter builds the manifest when it sends the request, because
the manifests of all pods of a large job would take hundreds of MiB and seconds of work.
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
    """Create an object that belongs to the job. If the object exists already, the action has succeeded."""

    kind: OwnedKind
    manifest: Manifest
    """The manifest without the values that only the adapter can fill in: those of a Secret or of a priority class."""
    made_before: bool = False
    """Whether the job has had this object before, which the operator may not read: only for a Secret."""

    @property
    def name(self) -> str:
        """The object's name."""
        return str(self.manifest["metadata"]["name"])


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete an object that belongs to the job. If the object is gone already, the action has succeeded."""

    kind: OwnedKind
    name: str


@dataclass(frozen=True, slots=True)
class Resize:
    """Change the number of nodes of a Kueue Workload. While the Workload holds quota, the number can only go down."""

    nodes: int
    least: int | None
    """The smallest number of nodes that an elastic job accepts; None: it accepts no fewer than `nodes`."""


@dataclass(frozen=True, slots=True)
class Tell:
    """Set conditions of a Kueue Workload."""

    conditions: tuple[tuple[str, bool, str, str], ...]
    """For each condition: its type, whether it is true, its reason and its message."""
    releases: bool = False
    """Whether the quota is given back."""


@dataclass(frozen=True, slots=True)
class Patch:
    """Change an object that belongs to the job. Fields that `change` does not mention keep their values."""

    kind: OwnedKind
    name: str
    change: Resize | Tell


@dataclass(frozen=True, slots=True)
class CreatePod:
    """Create the present pod of a node. If the pod exists already, the action has succeeded."""

    node: int
    job: DDPJob
    """The job, with the status that authorises the action."""
    living: tuple[str, ...] = ()
    """Addresses of the gang's pods that already run."""
    placement: Placement | None = None
    """What the queue's admission of the job adds to the pod; None if the job does not queue."""
    reserve: bool = False
    """Whether the pod is a reserve: it does not train, but once it is scheduled, an elastic gang can grow."""

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
    """Delete the pod with this name and uid. If the pod is gone already, the action has succeeded."""

    name: str
    uid: str
    grace_period_seconds: int | None
    """Seconds between SIGTERM and SIGKILL; None: the pod's own."""


@dataclass(frozen=True, slots=True)
class StopPod:
    """Stop a pod within its own grace period, but keep it. If the pod is gone already, the action has succeeded."""

    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class TellDomain:
    """Write a pod's topology domain into its annotation. If the pod is gone already, the action has succeeded."""

    name: str
    uid: str
    domain: str
    """The domain's name; empty if the pod's Kubernetes node is in no domain."""


@dataclass(frozen=True, slots=True)
class RequestCheckpoint:
    """Write a checkpoint request into a pod's annotation. If the pod is gone already, the action has succeeded."""

    name: str
    uid: str
    request: str


@dataclass(frozen=True, slots=True)
class MarkFinished:
    """Record in the metadata that the job has finished, because a job restored from a backup may lack its status."""

    mark: str
    """The final state and a digest of the job's name. The digest exposes a mark that was copied with another job."""


@dataclass(frozen=True, slots=True)
class DeleteJob:
    """Delete the job itself, with everything that belongs to it, unless the job has changed since it was read."""


Action = (
    Create
    | Delete
    | Patch
    | CreatePod
    | DeletePod
    | StopPod
    | TellDomain
    | RequestCheckpoint
    | MarkFinished
    | DeleteJob
)


@dataclass(frozen=True, slots=True)
class Event:
    """A Kubernetes event, for people to read."""

    warning: bool
    reason: str
    """The type of the condition that became true, or the reason of an event that no condition causes."""
    message: str


@dataclass(frozen=True, slots=True)
class InLine:
    """A job's place in the line for Kubernetes nodes."""

    found: int = 0
    """How many of the job's nodes have a scheduled pod, or no longer need a pod."""
    away: bool = False
    """Whether the job gave way to a job ahead, and has no pods until it may try again."""


@dataclass(frozen=True, slots=True)
class Decision:
    """The outcome of a round.

    The adapter first writes the status, which authorises the actions. Then it carries out the actions and posts the
    events.
    """

    status: DDPJobStatus | None = None
    """The whole new status; None when nothing changed."""
    actions: tuple[Action, ...] = ()
    events: tuple[Event, ...] = ()
    wake_at: datetime | None = None
    """When to look at the job again even if nothing happens."""
    can_wait: bool = False
    """Whether nothing in the status is urgent, so that it may be written later, together with other changes."""
    in_line: InLine | None = None
    """The job's place in the line for Kubernetes nodes from now on; None: the job is not in the line."""
    needs: Needs = NO_NEEDS
    """The facts that the adapter has to look up first. If any are needed, the rest of the decision is empty."""

    @property
    def empty(self) -> bool:
        """Whether the decision contains no new status, no actions and no events."""
        return self.status is None and not self.actions and not self.events
