"""The snapshot: a job and everything that belongs to it at one moment. Adapters fill it, and the engine reads it."""

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from datetime import datetime, timedelta
from typing import Any

from ddpjob_operator.api import NO_DEFAULTS, DDPJob, Defaults

from .owned import KUEUE_WORKLOAD, OWNED, OwnedKind, group_kind
from .reports import SupervisorReport
from .settings import DEFAULTS, Settings

CLOCKS_DIFFER = timedelta(seconds=5)
"""The tolerance when the end of a container is compared with the deletion of its pod. The first time comes from the
clock of the Kubernetes node, the second from the API server's, and both are in whole seconds."""


@dataclass(frozen=True, slots=True)
class Exit:
    """How a trainer container ended."""

    code: int | None
    """The exit code, 128+n for signal n; None if the container ended without an exit code."""
    reason: str = ""
    """The container runtime's reason: `OOMKilled`, `Error`, `StartError`."""
    message: str = ""
    """The termination message: a failure report as JSON or, without one, the end of the log."""
    finished_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Waiting:
    """Why a trainer is not running yet."""

    reason: str
    """The scheduler's or the kubelet's reason: `Unschedulable`, `ImagePullBackOff`."""
    message: str = ""
    busy: bool = False
    """Whether one of the template's init containers is running, which may take a while, for example to load data."""

    def __str__(self) -> str:
        return ": ".join(part for part in (self.reason, self.message) if part)


@dataclass(frozen=True, slots=True)
class Disruption:
    """A pod's condition DisruptionTarget: why the cluster is taking the pod away."""

    reason: str
    """`PreemptionByScheduler`, `EvictionByEvictionAPI`, …"""
    message: str = ""


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod of the job, with only the fields that decisions need."""

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
    """The Kubernetes node that the pod is scheduled on; None until then."""
    nominated: bool = False
    """Whether a Kubernetes node is promised to the pod: the scheduler is preempting other pods there, or an
    autoscaler has made plans for the pod."""
    domain: str | None = None
    """The topology domain from the pod's annotation, which its supervisor reads; empty if its Kubernetes node is in
    no domain. None: the annotation is not written yet."""
    checkpoint_request: str = ""
    """The request for a checkpoint from the pod's annotation, which its supervisor reads; empty if there was none."""
    priority: int = 0
    """The value of the pod's priority class."""
    address: str | None = None
    """The pod's IP address; None until it has one."""
    waiting: Waiting | None = None
    """Why the trainer is not running yet, if that is known."""
    created_at: datetime | None = None
    scheduled_at: datetime | None = None
    """When the pod was assigned to its Kubernetes node."""
    started_at: datetime | None = None
    """When the trainer started running."""
    reason: str = ""
    """The kubelet's reason if the pod as a whole has failed: `Evicted`, `OutOfcpu`; otherwise empty."""
    message: str = ""
    """The kubelet's message that goes with `reason`."""
    disruption: Disruption | None = None
    sandbox_lost: bool = False
    """Whether the pod's sandbox disappeared while the trainer was running. No container can run without it."""
    stopped: bool = False
    """Whether the operator told the pod to stop, but keeps the pod for its log."""
    gone_by: datetime | None = None
    """When a pod that is being deleted should be gone, because its grace period ends. None if that is not known."""
    forced: bool = False
    """Whether the pod was deleted without a grace period, so that only a finalizer can still be keeping it."""
    lingering: bool = False
    """Whether other containers of the pod are still running although the trainer has ended."""
    steady: bool = field(init=False, repr=False, compare=False)
    """Whether the pod runs and needs no closer look by any policy, like nearly all pods of a running gang.

    This is computed when the pod is read, because the engine checks all pods of a gang, which may be thousands,
    whenever one of them changes."""

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
        """Whether the pod was told to stop and will be kept, but the trainer or another container still runs."""
        return self.stopped and (self.active or self.lingering)

    @property
    def succeeded(self) -> bool:
        """Whether the trainer ended well without being told to stop.

        Many programs that are told to stop save and exit with 0, although they have not finished.
        """
        ended = self.exit
        ended_as_a_whole = bool(self.reason) and not self.stopped
        taken = self.disruption is not None or self.sandbox_lost or ended_as_a_whole
        by_itself = not taken and ended is not None and not self.was_told_before(ended.finished_at)
        return ended is not None and ended.code == 0 and by_itself

    def was_told_before(self, moment: datetime | None) -> bool:
        """Whether the pod was told to stop before `moment`, as far as the known times show.

        If in doubt, the answer is yes, because a job that was wrongly counted as succeeded would never continue.
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
    """The jobs ahead of this job in the line for Kubernetes nodes."""

    jobs: int
    """The number of jobs ahead."""
    moved_at: datetime
    """When the line last moved: when another job became first, or the first job got or lost a Kubernetes node."""


@dataclass(frozen=True, slots=True)
class PodGroup:
    """Pods that the cluster's scheduler places together."""

    name: str
    waiting: Waiting | None = None
    """Why the scheduler has not placed the pods yet, if it gives a reason."""
    deleting: bool = False
    """Whether the group is being deleted. Until its last pod is gone, the scheduler still treats it as a group."""


@dataclass(frozen=True, slots=True)
class Queue:
    """The queue that must admit the job, as named in the job's labels."""

    name: str
    priority_class: str = ""
    """The WorkloadPriorityClass; if empty, the pods' priority class applies."""


@dataclass(frozen=True, slots=True)
class Flavor:
    """A kind of Kubernetes node that a queue gives quota for: a ResourceFlavor of Kueue."""

    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Any, ...] = ()
    problem: str = ""
    """Why the flavor cannot be read, in a sentence; empty if it was read."""


@dataclass(frozen=True, slots=True)
class Placement:
    """What a queue's admission of a job adds to the job's pods."""

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
    """The number of nodes that the quota is for. An elastic job may get quota for fewer nodes than it requested."""
    flavors: frozenset[str] = frozenset()
    """Names of the flavors whose Kubernetes nodes the pods may use."""
    placement: Placement = Placement()
    """What the admission adds to the pods, besides the selectors and tolerations of the flavors."""


@dataclass(frozen=True, slots=True)
class KueueWorkload:
    """The Workload that stands for the job in a queue of Kueue."""

    name: str
    queue: str
    priority_class: str
    nodes: int
    """How many nodes the Workload requests."""
    asked: str
    """A digest of everything else that the Workload requests."""
    least: int | None = None
    """The smallest number of nodes that the job can run with; None: it needs all that it requests."""
    reserved: bool = False
    """Whether the queue has reserved quota for the job."""
    admission: Admission | None = None
    evicted: bool = False
    """Whether the queue wants the job's quota back."""
    waiting: Waiting | None = None
    """Why the job is not admitted, or was evicted, in Kueue's words."""
    ready: bool = False
    """Whether Kueue has been told that all pods have come up."""
    finished: bool = False
    """Whether Kueue has been told that the job has finished."""
    deleting: bool = False


@dataclass(frozen=True, slots=True)
class Refusal:
    """The cluster's refusal to create an object of the job, because of a quota, a policy or a name in use."""

    reason: str
    """One CamelCase word for programs."""
    message: str
    """The cluster's own words."""
    retry_at: datetime
    """When to try again. This takes a timer, because no watch reports that the obstacle is gone."""
    fits: int | None = None
    """The most pods that the job can have until somebody removes the obstacle; None: there is no such limit."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A supervisor whose report is to be read, with the address of its status page."""

    pod: str
    """Name of the supervisor's pod. The answer is about the gang that this pod belongs to."""
    address: str
    port: int


@dataclass(frozen=True, slots=True)
class Needs:
    """The facts that an adapter has to look up before a decision about a job is possible.

    In `Snapshot.answered`: the facts that the adapter has already tried to look up.
    """

    pods: bool = False
    """Whether a fresh list of the job's pods is needed, because a watch may have missed one."""
    node_names: frozenset[str] = frozenset()
    """Kubernetes nodes, by name, whose problems are needed."""
    domains: frozenset[str] = frozenset()
    """Kubernetes nodes, by name, whose topology domains are needed: the values of the label that the job names."""
    flavors: frozenset[str] = frozenset()
    """Flavors, by name, whose selectors and tolerations are needed."""
    supervisor: Asked | None = None
    """Rank 0's supervisor, if its report is needed. From then on the adapter reads the report regularly."""
    witness: Asked | None = None
    """Another supervisor whose report is needed as well."""
    scale_up: str | None = None
    """The uid of a pod, if the decision depends on whether an autoscaler is adding a Kubernetes node for that pod."""

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
"""The value of `Snapshot.owned` for a job without objects, on a cluster that lacks all optional kinds."""


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
    """The earliest estimate of the present time, if the clocks of the API servers differ. None: the same as `now`."""
    settles_at: datetime | None = None
    """Until this moment `now` is uncertain, because the servers' clocks were first read only recently. None: `now` is
    certain."""
    kubernetes_node_problems: Mapping[str, str] = field(default_factory=dict)
    """The problem of each requested Kubernetes node, by the node's name, as the end of a sentence, such as `is gone`;
    empty if the node has no problem."""
    domains: Mapping[str, str] = field(default_factory=dict)
    """The topology domain of each requested Kubernetes node, by the node's name; empty if the node has no domain."""
    owned: Mapping[OwnedKind, tuple[Any, ...]] = field(default_factory=lambda: NOTHING_MADE)
    """The job's objects by kind: PodGroups and Kueue Workloads as objects, all others by name. A kind is missing if
    the operator cannot create it, because the cluster lacks the API or forbids the operator to use it."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """The labels of the job itself."""
    annotations: Mapping[str, str] = field(default_factory=dict)
    """The annotations of the job itself that its objects could inherit."""
    checkpoint_request: str = ""
    """The last request for a checkpoint, a word that differs from all others; empty if there was none."""
    keeper: str = ""
    """The GitOps tool that manages the job, such as Argo CD; empty if no such tool is known."""
    queue: Queue | None = None
    """The queue that must admit the job; None if the job does not queue."""
    defaults: Defaults = NO_DEFAULTS
    """The organisation's settings for the job, which `job` has already been given; fixed once the job has begun."""
    defaults_unknown: str = ""
    """Why the organisation's settings are not known, in a sentence; empty if they are. Without them no job begins."""
    flavors: Mapping[str, Flavor] = field(default_factory=dict)
    """The requested flavors, by name."""
    ahead: Ahead | None = None
    """The jobs ahead of this job in the line for Kubernetes nodes; None if there are none."""
    scales_up: bool = False
    """Whether an autoscaler is adding a Kubernetes node for the pod in `Needs.scale_up`."""
    mark: str | None = None
    """The mark of a finished job (`MarkFinished.mark`) from the job's metadata; empty if the job has no mark. None:
    the job is never marked, because its status cannot be lost without the job."""
    report: SupervisorReport | None = None
    """The last report of rank 0's supervisor; None if the supervisor was never asked, or has never answered."""
    witness: SupervisorReport | None = None
    """If rank 0's supervisor is silent: the report of another supervisor of the present gang on its own state."""
    answered: Needs = NO_NEEDS
    """The facts that the adapter has already tried to look up for this decision, with or without success."""

    def has(self, kind: OwnedKind) -> bool | None:
        """Whether the job has an object of a kind; None if the operator cannot create objects of this kind."""
        objects = self.owned.get(kind)
        return None if objects is None else bool(objects)

    @property
    def pod_groups(self) -> tuple[PodGroup, ...] | None:
        """The job's PodGroups, of the kind that its scheduler knows; None if the operator cannot create any."""
        return self.owned.get(group_kind(self.job))

    @property
    def kueue_workloads(self) -> tuple[KueueWorkload, ...] | None:
        """The job's Workloads in Kueue; None if the operator cannot create any."""
        return self.owned.get(KUEUE_WORKLOAD)


Manifest = dict[str, Any]
"""A Kubernetes object as parsed JSON."""
