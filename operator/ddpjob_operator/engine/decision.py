"""What to do and what to say: the engine's answer to a snapshot.

An action that creates something only names it. The adapter builds the manifest when it sends it: all manifests of a
large job at once are hundreds of MiB and seconds of work.
"""

from dataclasses import dataclass
from datetime import datetime

from ddpjob_operator.api import DDPJob, DDPJobStatus

from .manifests.children import (
    build_disruption_budget,
    build_network_policy,
    build_pod,
    build_reserve,
    build_secret,
    build_service,
)
from .manifests.kueue_workload import build_kueue_workload
from .manifests.names import present_pod_name
from .manifests.pod_groups import build_pod_group, build_workload
from .settings import Settings
from .snapshot import NOTHING, Manifest, Needs, Placement, Queue


@dataclass(frozen=True, slots=True)
class CreateService:
    """Create the headless Service by which rank 0 is found. If it exists already, that is success."""

    job: DDPJob
    """With the status that authorises the action, as in all of these."""

    def build(self) -> Manifest:
        """The Service's manifest."""
        return build_service(self.job)


@dataclass(frozen=True, slots=True)
class CreateNetworkPolicy:
    """Create the NetworkPolicy that keeps others out. If it exists already, that is success."""

    job: DDPJob
    settings: Settings

    def build(self) -> Manifest:
        """The NetworkPolicy's manifest."""
        return build_network_policy(self.job, self.settings)


@dataclass(frozen=True, slots=True)
class DeleteNetworkPolicy:
    """Delete the job's NetworkPolicy. If it is gone already, that is success."""

    name: str


@dataclass(frozen=True, slots=True)
class CreateDisruptionBudget:
    """Create the PodDisruptionBudget by which evictions are refused. If it exists already, that is success."""

    job: DDPJob

    def build(self) -> Manifest:
        """The PodDisruptionBudget's manifest."""
        return build_disruption_budget(self.job)


@dataclass(frozen=True, slots=True)
class DeleteDisruptionBudget:
    """Delete it, so that pods may be evicted. If it is gone already, that is success."""

    name: str


@dataclass(frozen=True, slots=True)
class CreateSecret:
    """Create the Secret by which the job's supervisors recognise each other, with a random value that nobody keeps.

    If it exists already, that is success.
    """

    job: DDPJob

    def build(self) -> Manifest:
        """The Secret's manifest, without its value."""
        return build_secret(self.job)


@dataclass(frozen=True, slots=True)
class CreateWorkload:
    """Create the Workload of the present attempt's PodGroup, before that. If it exists already, that is success."""

    job: DDPJob

    def build(self) -> Manifest:
        """The Workload's manifest."""
        return build_workload(self.job)


@dataclass(frozen=True, slots=True)
class CreatePodGroup:
    """Create the PodGroup that the present attempt's pods name, before them. If it exists, that is success."""

    job: DDPJob

    def build(self) -> Manifest:
        """The PodGroup's manifest."""
        return build_pod_group(self.job)


@dataclass(frozen=True, slots=True)
class DeleteWorkload:
    """Delete the Workload of a former attempt's PodGroup. If it is gone already, that is success."""

    name: str


@dataclass(frozen=True, slots=True)
class DeletePodGroup:
    """Delete the PodGroup of a former attempt. If it is gone already, that is success."""

    name: str


@dataclass(frozen=True, slots=True)
class CreateKueueWorkload:
    """Put the job into its queue. If it is there already, that is success."""

    job: DDPJob
    queue: Queue

    def build(self) -> Manifest:
        """The manifest of Kueue's Workload, without the value of its priority class."""
        return build_kueue_workload(self.job, self.queue)


@dataclass(frozen=True, slots=True)
class ResizeKueueWorkload:
    """Ask the queue for another number of nodes. While it keeps quota for the job, that can only become smaller."""

    name: str
    nodes: int
    least: int | None
    """How few an elastic job can do with; None: no fewer."""


@dataclass(frozen=True, slots=True)
class TellKueue:
    """Change the status of the job's Workload in Kueue; what is not named here is left as it is."""

    name: str
    conditions: tuple[tuple[str, bool, str, str], ...]
    """Of each its type, whether it is true, its reason and its message."""
    releases: bool = False
    """Whether the quota is given back."""


@dataclass(frozen=True, slots=True)
class DeleteKueueWorkload:
    """Take the job out of its queue, and give back its quota. If it is gone already, that is success."""

    name: str


@dataclass(frozen=True, slots=True)
class CreatePod:
    """Create the present pod of a node. If it exists already, that is success."""

    node: int
    job: DDPJob
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


Action = (
    CreateService
    | CreateNetworkPolicy
    | DeleteNetworkPolicy
    | CreateDisruptionBudget
    | DeleteDisruptionBudget
    | CreateSecret
    | CreateWorkload
    | CreatePodGroup
    | DeleteWorkload
    | DeletePodGroup
    | CreateKueueWorkload
    | ResizeKueueWorkload
    | TellKueue
    | DeleteKueueWorkload
    | CreatePod
    | DeletePod
    | StopPod
    | TellDomain
    | MarkFinished
    | DeleteJob
)


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
    needs: Needs = NOTHING
    """What has to be found out first; if anything, the rest of the decision is empty."""

    @property
    def empty(self) -> bool:
        """Whether there is nothing to do or say."""
        return self.status is None and not self.actions and not self.events
