"""What to do and what to say: the engine's answer to a snapshot.

An action that creates a pod only names it. The adapter builds the manifest when it sends it: all manifests of a large
job at once are hundreds of MiB and seconds of work.
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
    """Without what only the adapter knows: the value of a Secret, or of a priority class."""

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
    """Another number of nodes for a Workload of Kueue. While it keeps quota, that can only become smaller."""

    nodes: int
    least: int | None
    """How few an elastic job can do with; None: no fewer."""


@dataclass(frozen=True, slots=True)
class Tell:
    """Conditions of a Workload of Kueue."""

    conditions: tuple[tuple[str, bool, str, str], ...]
    """Of each its type, whether it is true, its reason and its message."""
    releases: bool = False
    """Whether the quota is given back."""


@dataclass(frozen=True, slots=True)
class Patch:
    """Change an object that belongs to the job; what is not named here is left as it is."""

    kind: OwnedKind
    name: str
    change: Resize | Tell


@dataclass(frozen=True, slots=True)
class CreatePod:
    """Create the present pod of a node. If it exists already, that is success."""

    node: int
    job: DDPJob
    """With the status that authorises the action."""
    living: tuple[str, ...] = ()
    """Addresses of the gang's pods that already run."""
    placement: Placement | None = None
    """What the job's queue has admitted it with."""
    reserve: bool = False
    """Whether it is a reserve, which only waits for room to grow into."""

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
    """Stop a pod and remove it, if it is still the same one. If it is gone already, that is success."""

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
    """Tell a pod, by an annotation, in which topology domain it is. If it is gone already, that is success."""

    name: str
    uid: str
    domain: str
    """Empty: in none."""


@dataclass(frozen=True, slots=True)
class MarkFinished:
    """Note in the job's metadata that it has finished: a backup may drop its status."""

    mark: str
    """How it ended, and a digest of its name: a copy has the job's metadata, too."""


@dataclass(frozen=True, slots=True)
class DeleteJob:
    """Delete the job itself, with all that belongs to it, if it has not changed since it was read."""


Action = Create | Delete | Patch | CreatePod | DeletePod | StopPod | TellDomain | MarkFinished | DeleteJob


@dataclass(frozen=True, slots=True)
class Event:
    """Something that a person wants to know."""

    warning: bool
    reason: str
    """The condition that came true."""
    message: str


@dataclass(frozen=True, slots=True)
class InLine:
    """How a job stands in the line for nodes."""

    found: int = 0
    """How many nodes it has found."""
    away: bool = False
    """Whether it gave way, and has no pods until it may try again."""


@dataclass(frozen=True, slots=True)
class Decision:
    """A round's outcome, carried out in this order: status, actions, events.

    So a status says only what has already been observed or what authorises the actions that follow, and no action is
    carried out unless its status has been written.
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
    """How the job stands in line for nodes from now on; None: it lacks none."""
    needs: Needs = NO_NEEDS
    """What has to be found out first; if anything, the rest of the decision is empty."""

    @property
    def empty(self) -> bool:
        """Whether there is nothing to do or say."""
        return self.status is None and not self.actions and not self.events
