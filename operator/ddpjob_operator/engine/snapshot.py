"""A job and all that belongs to it at one moment, as data. Adapters fill it, the engine reads it."""

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from datetime import datetime, timedelta
from typing import Any

from ddpjob_operator.api import DDPJob

from .owned import KUEUE_WORKLOAD, OWNED, OwnedKind, group_kind
from .reports import Heard
from .settings import DEFAULTS, Settings

CLOCKS_DIFFER = timedelta(seconds=5)
"""The time of an end is by the node's clock, that of a deletion by the API server's, both in whole seconds."""


@dataclass(frozen=True, slots=True)
class Exit:
    """How a trainer container ended."""

    code: int | None
    """Its exit code, 128+n for signal n; None if it ended without one."""
    reason: str = ""
    """The container runtime's word for it: `OOMKilled`, `Error`, `StartError`."""
    message: str = ""
    """The termination message: a failure report as JSON or, without one, the end of the log."""
    finished_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Waiting:
    """Why a trainer is not running yet."""

    reason: str
    """The scheduler's or the kubelet's word for it: `Unschedulable`, `ImagePullBackOff`."""
    message: str = ""
    busy: bool = False
    """Whether one of the pod's own init containers is running: what it fetches may take a while."""

    def __str__(self) -> str:
        return ": ".join(part for part in (self.reason, self.message) if part)


@dataclass(frozen=True, slots=True)
class Disruption:
    """That the cluster is taking a pod away (its condition DisruptionTarget), and why."""

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
    """If not, the latest moment at which that can have been."""
    node_name: str | None = None
    """The Kubernetes node that it was given, if it was."""
    nominated: bool = False
    """Whether it has been promised a Kubernetes node: others are preempted there, or an autoscaler expects it."""
    domain: str | None = None
    """The topology domain that its supervisor was told: empty, if its node is in none. None: it was told nothing."""
    priority: int = 0
    """The value of its priority class."""
    address: str | None = None
    """Its IP, once it has one."""
    waiting: Waiting | None = None
    """Why the trainer is not running yet, if that is known."""
    created_at: datetime | None = None
    scheduled_at: datetime | None = None
    """When it was assigned its node."""
    started_at: datetime | None = None
    """When its trainer started running."""
    reason: str = ""
    """The kubelet's word for why the pod as a whole has failed: `Evicted`, `OutOfcpu`; empty if it has not."""
    message: str = ""
    """The same in a sentence."""
    disruption: Disruption | None = None
    sandbox_lost: bool = False
    """Whether its sandbox, which its containers need, was gone while the trainer was still running."""
    stopped: bool = False
    """Whether it was told to stop and is to be kept."""
    gone_by: datetime | None = None
    """When a pod that is being deleted has to be gone, its grace period included; None if that is not known."""
    forced: bool = False
    """Whether it was deleted without a grace period, and exists only because somebody's finalizer keeps it."""
    lingering: bool = False
    """Whether other containers of the pod are still running although the trainer has ended."""
    steady: bool = field(init=False, repr=False, compare=False)
    """Whether it runs and there is nothing else to say of it, as of nearly all pods of a gang that runs.

    Determined once: thousands are looked at for it each time that one of them changes."""

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
        """Whether it was told to stop and is to be kept, and something in it is still running."""
        return self.stopped and (self.active or self.lingering)

    @property
    def succeeded(self) -> bool:
        """Whether the trainer ended well, and by itself: when told to stop, many programs save and exit with 0."""
        ended = self.exit
        taken = self.disruption is not None or self.sandbox_lost
        by_itself = not taken and ended is not None and not self.was_told_before(ended.finished_at)
        return ended is not None and ended.code == 0 and by_itself

    def was_told_before(self, moment: datetime | None) -> bool:
        """Whether it was told to stop before a moment, as far as anybody knows.

        If in doubt, it was: a job that is wrongly taken to have succeeded would never go on.
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
    """When the line last moved: when the first of them became the first, or last found a node or lost one."""


@dataclass(frozen=True, slots=True)
class PodGroup:
    """Pods that the cluster's scheduler places together."""

    name: str
    waiting: Waiting | None = None
    """Why the scheduler has not placed them yet, if it says so."""
    deleting: bool = False
    """Whether it goes as soon as no pod of it is left; until then the scheduler still heeds it."""


@dataclass(frozen=True, slots=True)
class Queue:
    """The queue by which a job is to be admitted, as the job's labels name it."""

    name: str
    priority_class: str = ""
    """The WorkloadPriorityClass; empty: by the priority class of the pods."""


@dataclass(frozen=True, slots=True)
class Flavor:
    """A kind of Kubernetes node that a queue hands out."""

    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Any, ...] = ()
    problem: str = ""
    """Why nobody can tell, in a sentence; empty if it is known."""


@dataclass(frozen=True, slots=True)
class Placement:
    """What pods have because a queue has admitted them."""

    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Any, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    topology: bool = False
    """Whether Kueue chooses the place of each pod."""


@dataclass(frozen=True, slots=True)
class Admission:
    """That a queue has admitted a job."""

    nodes: int
    """How many nodes there is quota for; of an elastic job it may be fewer than were asked for."""
    flavors: frozenset[str] = frozenset()
    """Names of the kinds of Kubernetes nodes."""
    placement: Placement = Placement()
    """What pods have besides what their flavors give them."""


@dataclass(frozen=True, slots=True)
class KueueWorkload:
    """A job's place in a queue."""

    name: str
    queue: str
    priority_class: str
    nodes: int
    """How many nodes it asks for."""
    asked: str
    """A digest of what else it asks for."""
    least: int | None = None
    """How few nodes it can do with; None: no fewer than it asks for."""
    reserved: bool = False
    """Whether the queue keeps quota for it."""
    admission: Admission | None = None
    evicted: bool = False
    """Whether the queue wants the quota back that it keeps for the job."""
    waiting: Waiting | None = None
    """Why it is not admitted, or was evicted, in Kueue's words."""
    ready: bool = False
    """Whether Kueue knows that all pods have come up."""
    finished: bool = False
    """Whether Kueue knows that the job has finished."""
    deleting: bool = False


@dataclass(frozen=True, slots=True)
class Refusal:
    """What the cluster said when it refused to create something of the job: a quota, a policy, a name in use."""

    reason: str
    """One CamelCase word for programs."""
    message: str
    """The cluster's own words."""
    retry_at: datetime
    """When to try again: nothing that we watch changes when the obstacle goes away."""


@dataclass(frozen=True, slots=True)
class Asked:
    """Where a supervisor serves its status, if there is one."""

    pod: str
    """The pod's name: the answer is about the gang that it belongs to."""
    address: str
    port: int


@dataclass(frozen=True, slots=True)
class Needs:
    """What has to be found out about a job before anything can be decided; or what has been."""

    pods: bool = False
    """A fresh list of its pods: a watch may have missed one."""
    node_names: frozenset[str] = frozenset()
    """What is wrong with these Kubernetes nodes, if anything."""
    domains: frozenset[str] = frozenset()
    """In which topology domains these Kubernetes nodes are, by the label that the job names."""
    flavors: frozenset[str] = frozenset()
    """What these kinds of Kubernetes nodes of a queue are."""
    supervisor: Asked | None = None
    """What rank 0's supervisor reports; it is asked regularly from then on."""
    witness: Asked | None = None
    """The same for another supervisor."""
    scale_up: str | None = None
    """Whether an autoscaler adds a node for the pod with this uid."""

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
"""Of what each cluster has."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The whole present state of one job."""

    now: datetime
    job: DDPJob
    pods: tuple[Pod, ...] = ()
    refusal: Refusal | None = None
    """Set if the last try to create what is missing was refused."""
    settings: Settings = DEFAULTS
    _: KW_ONLY
    earliest: datetime | None = None
    """The earliest that it may be, if not all servers agree on the time. None: it is `now`."""
    settles_at: datetime | None = None
    """Until when the time is not certain, because it was just learned. None: it is certain."""
    kubernetes_node_problems: Mapping[str, str] = field(default_factory=dict)
    """What is wrong with the Kubernetes nodes that were asked about, in a sentence; empty if nothing is."""
    domains: Mapping[str, str] = field(default_factory=dict)
    """The topology domains of the Kubernetes nodes that were asked about; empty for one that is in none."""
    owned: Mapping[OwnedKind, tuple[Any, ...]] = field(default_factory=lambda: NOTHING_MADE)
    """What of each kind belongs to the job: PodGroups and Workloads of Kueue, and the names of all others. A kind is
    missing where nobody can make one: the cluster has no such API, or forbids it."""
    queue: Queue | None = None
    """The queue that is to admit the job; None if none is."""
    flavors: Mapping[str, Flavor] = field(default_factory=dict)
    """Those kinds of Kubernetes nodes that were asked about."""
    ahead: Ahead | None = None
    """The jobs ahead of this one in the line for nodes; None if there are none."""
    scales_up: bool = False
    """Whether an autoscaler adds a node for the pod that was asked about."""
    mark: str | None = None
    """How the job ended by its metadata, with a digest of the name of the job that it was written for; empty if it
    says nothing. None: the job is never marked, since its status cannot get lost without the rest of it."""
    heard: Heard | None = None
    """What rank 0's supervisor reported last; None if it was never asked, or has never answered."""
    witness: Heard | None = None
    """What another supervisor of the present gang reports of itself, if rank 0's is silent."""
    answered: Needs = NO_NEEDS
    """Which of these a decision needed and has been asked for, with or without an answer."""

    def has(self, kind: OwnedKind) -> bool | None:
        """Whether the job has an object of a kind; None where nobody can make one."""
        there = self.owned.get(kind)
        return None if there is None else bool(there)

    @property
    def pod_groups(self) -> tuple[PodGroup, ...] | None:
        """The job's PodGroups, of the kind that its scheduler knows; None where nobody can make any."""
        return self.owned.get(group_kind(self.job))

    @property
    def kueue_workloads(self) -> tuple[KueueWorkload, ...] | None:
        """The job's Workloads in Kueue; None where nobody can make any."""
        return self.owned.get(KUEUE_WORKLOAD)


Manifest = dict[str, Any]
"""A Kubernetes object as JSON has it."""
