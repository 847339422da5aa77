"""A job and all that belongs to it at one moment, as data. Adapters fill it, the engine reads it."""

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from datetime import datetime, timedelta
from typing import Any

from ddpjob_operator.api import DDPJob

from .owned import KUEUE_WORKLOAD, OWNED, OwnedKind, group_kind
from .reports import SupervisorReport
from .settings import DEFAULTS, Settings

CLOCKS_DIFFER = timedelta(seconds=5)
"""The tolerance when the end of a container is compared with the deletion of its pod: the former is by the clock of
its Kubernetes node, the latter by the API server's, and both are in whole seconds."""


@dataclass(frozen=True, slots=True)
class Exit:
    """How a trainer container ended."""

    code: int | None
    """Its exit code, 128+n for signal n; None if it ended without one."""
    reason: str = ""
    """The container runtime's word for how it ended: `OOMKilled`, `Error`, `StartError`."""
    message: str = ""
    """The termination message: a failure report as JSON or, without one, the end of the log."""
    finished_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Waiting:
    """Why a trainer is not running yet."""

    reason: str
    """The scheduler's or the kubelet's word for the reason: `Unschedulable`, `ImagePullBackOff`."""
    message: str = ""
    busy: bool = False
    """Whether one of the template's init containers is running: what it downloads may take a while."""

    def __str__(self) -> str:
        return ": ".join(part for part in (self.reason, self.message) if part)


@dataclass(frozen=True, slots=True)
class Disruption:
    """A pod's condition DisruptionTarget: the cluster is taking the pod away, and why."""

    reason: str
    """`PreemptionByScheduler`, `EvictionByEvictionAPI`, …"""
    message: str = ""


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod of the job, with only what decisions need."""

    name: str
    uid: str
    node: int
    """The node's number."""
    incarnation: int
    running: bool = False
    """Whether the trainer container runs."""
    exit: Exit | None = None
    """Set once the trainer container has ended, which is final: containers are never restarted."""
    deleting: bool = False
    told_at: datetime | None = None
    """When a pod that is being deleted was told to stop, if that is known."""
    told_by: datetime | None = None
    """If `told_at` is not known: the latest moment at which the pod can have been told to stop."""
    node_name: str | None = None
    """The Kubernetes node on which it is scheduled; None until then."""
    nominated: bool = False
    """Whether it has been promised a Kubernetes node: the scheduler preempts other pods there, or an autoscaler plans
    with the pod."""
    domain: str | None = None
    """The topology domain in its annotation, which its supervisor reads; empty if its Kubernetes node is in none.
    None: the annotation is not written yet."""
    priority: int = 0
    """The value of its priority class."""
    address: str | None = None
    """Its IP, once it has one."""
    waiting: Waiting | None = None
    """Why the trainer is not running yet, if that is known."""
    created_at: datetime | None = None
    scheduled_at: datetime | None = None
    """When it was assigned its Kubernetes node."""
    started_at: datetime | None = None
    """When its trainer started running."""
    reason: str = ""
    """The kubelet's word for why the pod as a whole has failed: `Evicted`, `OutOfcpu`; empty if it has not."""
    message: str = ""
    """The same in a sentence."""
    disruption: Disruption | None = None
    sandbox_lost: bool = False
    """Whether its sandbox, without which its containers cannot run, disappeared while the trainer was still
    running."""
    stopped: bool = False
    """Whether the operator told it to stop, and keeps it for its log."""
    gone_by: datetime | None = None
    """When a pod that is being deleted has to be gone: at the end of its grace period. None if that is not known."""
    forced: bool = False
    """Whether it was deleted without a grace period, and exists only because somebody's finalizer keeps it."""
    lingering: bool = False
    """Whether other containers of the pod are still running although the trainer has ended."""
    steady: bool = field(init=False, repr=False, compare=False)
    """Whether it runs and no policy has to look at it more closely, as with nearly all pods of a gang that runs.

    Computed once for each pod: whenever one pod changes, the engine reads this from all pods of the gang, which may
    be thousands."""

    def __post_init__(self) -> None:
        asked_to_go = self.deleting or self.gone_by is not None or self.stopped or self.disruption is not None
        runs = self.running and self.exit is None and not self.sandbox_lost
        steady = runs and self.waiting is None and self.node_name is not None and not asked_to_go
        object.__setattr__(self, "steady", steady)

    @property
    def active(self) -> bool:
        """Whether the trainer is running or may still start."""
        return self.exit is None

    @property
    def stopping(self) -> bool:
        """Whether it was told to stop and is to be kept, but the trainer or another container is still running."""
        return self.stopped and (self.active or self.lingering)

    @property
    def succeeded(self) -> bool:
        """Whether the trainer ended well, and by itself: when told to stop, many programs save and exit with 0."""
        ended = self.exit
        ended_as_a_whole = bool(self.reason) and not self.stopped
        taken = self.disruption is not None or self.sandbox_lost or ended_as_a_whole
        by_itself = not taken and ended is not None and not self.was_told_before(ended.finished_at)
        return ended is not None and ended.code == 0 and by_itself

    def was_told_before(self, moment: datetime | None) -> bool:
        """Whether it was told to stop before `moment`, as far as the known times show.

        When in doubt, the answer is yes: a job that is wrongly taken to have succeeded would never go on.
        """
        if moment is None or self.told_at is None:
            return self.deleting
        return self.told_at < moment + CLOCKS_DIFFER

    @property
    def failed(self) -> bool:
        """Whether the trainer ended badly."""
        return self.exit is not None and not self.succeeded


@dataclass(frozen=True, slots=True)
class Ahead:
    """The jobs ahead of another one in the line for nodes."""

    jobs: int
    """How many there are."""
    moved_at: datetime
    """When the line last moved: when another job became the first, or the first one got or lost a Kubernetes node."""


@dataclass(frozen=True, slots=True)
class PodGroup:
    """Pods that the cluster's scheduler places together."""

    name: str
    waiting: Waiting | None = None
    """Why the scheduler has not placed them yet, if it says so."""
    deleting: bool = False
    """Whether it is being deleted. It still exists, and binds the scheduler, until its last pod is gone."""


@dataclass(frozen=True, slots=True)
class Queue:
    """The queue by which a job is to be admitted, as the job's labels name it."""

    name: str
    priority_class: str = ""
    """The WorkloadPriorityClass; empty: the pods' priority class decides."""


@dataclass(frozen=True, slots=True)
class Flavor:
    """A kind of Kubernetes node that a queue hands out: a ResourceFlavor of Kueue."""

    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Any, ...] = ()
    problem: str = ""
    """Why the flavor cannot be read, in a sentence; empty if it was read."""


@dataclass(frozen=True, slots=True)
class Placement:
    """What the admission by a queue adds to the pods of a job."""

    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Any, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    topology: bool = False
    """Whether Kueue chooses the topology domain of each pod."""


@dataclass(frozen=True, slots=True)
class Admission:
    """A queue's admission of a job."""

    nodes: int
    """How many nodes there is quota for; of an elastic job it may be fewer than were asked for."""
    flavors: frozenset[str] = frozenset()
    """Names of the flavors whose Kubernetes nodes the pods may use."""
    placement: Placement = Placement()
    """What the admission adds to the pods, besides the selectors and tolerations of the flavors."""


@dataclass(frozen=True, slots=True)
class KueueWorkload:
    """A job's place in a queue, as a Workload of Kueue."""

    name: str
    queue: str
    priority_class: str
    nodes: int
    """How many nodes it asks for."""
    asked: str
    """A digest of everything else that it asks for."""
    least: int | None = None
    """The fewest nodes that it can run with; None: no fewer than it asks for."""
    reserved: bool = False
    """Whether the queue keeps quota for it."""
    admission: Admission | None = None
    evicted: bool = False
    """Whether the queue wants back the quota that it keeps for the job."""
    waiting: Waiting | None = None
    """Why it is not admitted, or was evicted, in Kueue's words."""
    ready: bool = False
    """Whether Kueue has been told that all pods have come up."""
    finished: bool = False
    """Whether Kueue has been told that the job has finished."""
    deleting: bool = False


@dataclass(frozen=True, slots=True)
class Refusal:
    """The cluster's refusal to create an object of the job: a quota, a policy, or a name that is in use."""

    reason: str
    """One CamelCase word for programs."""
    message: str
    """The cluster's own words."""
    retry_at: datetime
    """When to try again: no watch reports that the obstacle has gone."""
    fits: int | None = None
    """The most pods that the job can have while the obstacle stays the same, whatever else ends; None: any number."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A supervisor to ask for its report, at the address where it serves its status."""

    pod: str
    """Name of the supervisor's pod. The answer is about the gang that this pod belongs to."""
    address: str
    port: int


@dataclass(frozen=True, slots=True)
class Needs:
    """What an adapter has to find out before a decision about a job is possible.

    In `Snapshot.answered` it is what the adapter has already tried to find out.
    """

    pods: bool = False
    """A fresh list of its pods: a watch may have missed one."""
    node_names: frozenset[str] = frozenset()
    """Kubernetes nodes, by name, whose problems are needed."""
    domains: frozenset[str] = frozenset()
    """Kubernetes nodes, by name, whose topology domains are needed: their values of the label that the job names."""
    flavors: frozenset[str] = frozenset()
    """Flavors, by name, whose selectors and tolerations are needed."""
    supervisor: Asked | None = None
    """Rank 0's supervisor, whose report is needed; it is asked regularly from then on."""
    witness: Asked | None = None
    """Another supervisor whose report is needed as well."""
    scale_up: str | None = None
    """The uid of a pod, if it has to be known whether an autoscaler is adding a Kubernetes node for it."""

    def __bool__(self) -> bool:
        return self != NO_NEEDS

    def __or__(self, more: "Needs") -> "Needs":
        return Needs(
            pods=self.pods or more.pods,
            node_names=self.node_names | more.node_names,
            domains=self.domains | more.domains,
            flavors=self.flavors | more.flavors,
            supervisor=more.supervisor or self.supervisor,
            witness=more.witness or self.witness,
            scale_up=more.scale_up or self.scale_up,
        )


NO_NEEDS = Needs()

NOTHING_MADE: Mapping[OwnedKind, tuple[Any, ...]] = {kind: () for kind in OWNED if kind.named and not kind.feature}
"""For each kind that every cluster has: no objects."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The whole present state of one job."""

    now: datetime
    job: DDPJob
    pods: tuple[Pod, ...] = ()
    refusal: Refusal | None = None
    """Set if the last request to create a missing object was refused."""
    settings: Settings = DEFAULTS
    _: KW_ONLY
    earliest: datetime | None = None
    """The earliest time that it may be now, if the clocks of the API servers differ. None: `now`."""
    settles_at: datetime | None = None
    """Until this moment `now` is not certain, because the servers' clocks were read only recently. None: it is
    certain."""
    kubernetes_node_problems: Mapping[str, str] = field(default_factory=dict)
    """The problem of each Kubernetes node that was asked about, by the node's name, as the end of a sentence, such as
    `is gone`; empty if there is none."""
    domains: Mapping[str, str] = field(default_factory=dict)
    """The topology domain of each Kubernetes node that was asked about, by the node's name; empty: it is in none."""
    owned: Mapping[OwnedKind, tuple[Any, ...]] = field(default_factory=lambda: NOTHING_MADE)
    """The job's objects by kind: PodGroups and Kueue Workloads as objects, all others by name. A kind is missing
    where the operator cannot create such objects: the cluster has no such API, or forbids it."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """The labels of the job itself."""
    annotations: Mapping[str, str] = field(default_factory=dict)
    """The annotations of the job itself that its objects could get."""
    keeper: str = ""
    """The tool that keeps the job as its repository has it, such as Argo CD; empty if no such tool is known."""
    queue: Queue | None = None
    """The queue that is to admit the job; None if none is."""
    flavors: Mapping[str, Flavor] = field(default_factory=dict)
    """The flavors that were asked about, by name."""
    ahead: Ahead | None = None
    """The jobs ahead of this one in the line for nodes; None if there are none."""
    scales_up: bool = False
    """Whether an autoscaler is adding a Kubernetes node for the pod that was asked about."""
    mark: str | None = None
    """The mark of a finished job (`MarkFinished.mark`) from the job's metadata; empty if it has none. None: the job
    is never marked, because its status cannot be lost unless the whole job is."""
    heard: SupervisorReport | None = None
    """The last report of rank 0's supervisor; None if it was never asked, or has never answered."""
    witness: SupervisorReport | None = None
    """The report of another supervisor of the present gang about itself, if rank 0's is silent."""
    answered: Needs = NO_NEEDS
    """What a decision needed and the adapter has already asked for, with or without an answer."""

    def has(self, kind: OwnedKind) -> bool | None:
        """Whether the job has an object of a kind; None where the operator cannot create one."""
        objects = self.owned.get(kind)
        return None if objects is None else bool(objects)

    @property
    def pod_groups(self) -> tuple[PodGroup, ...] | None:
        """The job's PodGroups, of the kind that its scheduler knows; None where the operator cannot create any."""
        return self.owned.get(group_kind(self.job))

    @property
    def kueue_workloads(self) -> tuple[KueueWorkload, ...] | None:
        """The job's Workloads in Kueue; None where the operator cannot create any."""
        return self.owned.get(KUEUE_WORKLOAD)


Manifest = dict[str, Any]
"""A Kubernetes object as parsed JSON."""
