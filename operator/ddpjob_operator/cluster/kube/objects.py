"""The types that the API server's JSON is decoded into. They contain only the fields that the operator needs.

The names are those of Kubernetes: https://kubernetes.io/docs/reference/kubernetes-api/
"""

import zlib
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, TypeVar

import msgspec

from ddpjob_operator.api.contract import ASKED, CHECKPOINT_REQUEST, DOMAIN, FINISHED, LONGEST_REQUEST
from ddpjob_operator.api.gitops import keeper
from ddpjob_operator.api.inheritance import LONGEST_VALUE, carried
from ddpjob_operator.api.job import of_submission

T = TypeVar("T")

Moment = Annotated[datetime, msgspec.Meta(tz=True)]
"""A time with its time zone. (Times without a time zone cannot be compared with those that have one.)"""


class _Part(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """The base of all types here. It ignores unknown fields and is exempt from the search for reference cycles."""


class OwnerReference(_Part, frozen=True):
    """A reference to an owner of the object. `controller` is true for the owner that manages the object."""

    uid: str
    api_version: str = ""
    kind: str = ""
    name: str = ""
    controller: bool = False


class ObjectMeta(_Part, frozen=True):
    """The metadata of an object. All fields have defaults, because an answer may be a Status with empty metadata."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 1
    creation_timestamp: Moment | None = None
    deletion_timestamp: Moment | None = None
    deletion_grace_period_seconds: int | None = None
    labels: Mapping[str, str] = {}
    owner_references: tuple[OwnerReference, ...] = ()


class Object(_Part, frozen=True):
    """An object of any kind."""

    metadata: ObjectMeta


SMALL_BYTES = 4 << 10
"""JSON up to this size is not compressed, because the memory saved is not worth the time that compression would take
at each change of each job."""


class Packed:
    """A part of an object that may be large, kept as JSON, which is compressed unless it is small.

    A template as dictionaries would take several times the memory of its JSON, and compressed JSON takes only a
    fraction of that.
    """

    __slots__ = ("_content", "has_nulls", "size")

    def __init__(self, what: Any) -> None:
        """Packs a value that JSON can represent."""
        text = msgspec.json.encode(what)
        self.size = len(text)
        """The size of the JSON in bytes, before compression."""
        self.has_nulls = b"null" in text
        """Whether the JSON may contain a null. (The letters may also be part of a string.)"""
        self._content = text if self._is_small else zlib.compress(text, level=1)

    def read(self, kind: Any = Any) -> Any:
        """Unpacks the value, or only the fields of `kind`, which is much faster."""
        return msgspec.json.decode(self._content if self._is_small else zlib.decompress(self._content), type=kind)

    @property
    def _is_small(self) -> bool:
        return self.size <= SMALL_BYTES


_NOTHING = Packed(None)


class JobAnnotations:
    """The annotations of a DDPJob that the operator sets or knows, and those that the job's objects could inherit."""

    __slots__ = ("checkpoint_request", "finished", "keeper", "of_submission", "others")

    def __init__(self, what: Any = None) -> None:
        """Reads annotations. Reserved and long annotations, such as a copy of the whole job, are not kept."""
        known = what if isinstance(what, dict) else {}
        texts = {key: value for key, value in known.items() if isinstance(value, str)}
        self.finished = texts.get(FINISHED, "")
        # A kubelet writes this word into a file, and the supervisor must read exactly the same word from the file.
        self.checkpoint_request = (
            texts.get(CHECKPOINT_REQUEST, "").encode("ascii", "ignore").decode().strip()[:LONGEST_REQUEST].strip()
        )
        self.keeper = keeper(texts)
        self.of_submission = of_submission(texts)
        self.others = {key: value for key, value in carried(texts).items() if len(value) <= LONGEST_VALUE}


class JobMeta(ObjectMeta, frozen=True):
    """The metadata of a DDPJob."""

    annotations: JobAnnotations = msgspec.field(default_factory=JobAnnotations)


class JobObject(Object, frozen=True):
    """A DDPJob. Spec and status are packed during decoding, so that a list of jobs is never in memory unpacked."""

    metadata: JobMeta
    spec: Packed = _NOTHING
    status: Packed = _NOTHING


class JobBookkeeping(_Part, frozen=True):
    """The part of a DDPJob's bookkeeping that tells whether another operator would run it."""

    contender: str = ""


class JobSummary(_Part, frozen=True):
    """The part of a DDPJob's status that each scrape of the metrics reads, or that tells whose the job is."""

    state: str = "Pending"
    restarts: int = 0
    disruptions: int = 0
    start_time: str | None = None
    operator: str = ""
    class_name: str = ""
    bookkeeping: JobBookkeeping = JobBookkeeping()


class StatusCondition(_Part, frozen=True):
    """A condition in an object's status."""

    type: str
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: Moment | None = None


class ContainerStateRunning(_Part, frozen=True):
    """The state of a container that runs."""

    started_at: Moment | None = None


class ContainerStateWaiting(_Part, frozen=True):
    """The state of a container that does not run yet."""

    reason: str = ""
    message: str = ""


class ContainerStateTerminated(_Part, frozen=True):
    """The state of a container that has ended."""

    exit_code: int | None = None
    reason: str = ""
    message: str = ""
    started_at: Moment | None = None
    finished_at: Moment | None = None


class ContainerState(_Part, frozen=True):
    """The state of a container. At most one field is set. If none is set, the container is waiting."""

    running: ContainerStateRunning | None = None
    waiting: ContainerStateWaiting | None = None
    terminated: ContainerStateTerminated | None = None


class ContainerStatus(_Part, frozen=True):
    """The status of a container, as the kubelet reports it."""

    name: str = ""
    started: bool | None = None
    state: ContainerState = ContainerState()


class InitContainer(_Part, frozen=True):
    """An init container in the spec of a pod, which is a sidecar if its restart policy is Always."""

    name: str = ""
    restart_policy: str | None = None


class PodSpec(_Part, frozen=True):
    """The spec of a pod."""

    node_name: str | None = None
    priority: int = 0
    active_deadline_seconds: int | None = None
    init_containers: tuple[InitContainer, ...] = ()


class PodStatus(_Part, frozen=True):
    """The status of a pod."""

    phase: str = ""
    reason: str = ""
    message: str = ""
    pod_ip: str | None = msgspec.field(default=None, name="podIP")
    nominated_node_name: str = ""
    conditions: tuple[StatusCondition, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()


class PodAnnotations(_Part, frozen=True):
    """The annotations of a pod that the operator sets."""

    domain: str | None = msgspec.field(default=None, name=DOMAIN)
    checkpoint_request: str = msgspec.field(default="", name=CHECKPOINT_REQUEST)


class PodMeta(ObjectMeta, frozen=True):
    """The metadata of a pod."""

    annotations: PodAnnotations = PodAnnotations()


class PodObject(Object, frozen=True):
    """A pod."""

    metadata: PodMeta
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class PodGroupStatus(_Part, frozen=True):
    """The status of a PodGroup, as its scheduler reports it."""

    conditions: tuple[StatusCondition, ...] = ()
    phase: str = ""
    """The phase, which only Volcano sets. Kubernetes' own PodGroup has none."""


class PodGroupObject(Object, frozen=True):
    """A PodGroup, of Kubernetes or of Volcano."""

    status: PodGroupStatus = PodGroupStatus()


class KueueAnnotations(_Part, frozen=True):
    """The annotations of a Kueue Workload that the operator sets."""

    asked: str = msgspec.field(default="", name=ASKED)


class KueueMeta(ObjectMeta, frozen=True):
    """The metadata of a Kueue Workload."""

    annotations: KueueAnnotations = KueueAnnotations()


class PodSet(_Part, frozen=True):
    """A set of identical pods in a Kueue Workload."""

    count: int = 1
    min_count: int | None = None


class PriorityClassRef(_Part, frozen=True):
    """A reference to a priority class."""

    name: str = ""


class KueueSpec(_Part, frozen=True):
    """The spec of a Kueue Workload, with its request to a queue."""

    queue_name: str = ""
    pod_sets: tuple[PodSet, ...] = ()
    priority_class_ref: PriorityClassRef = PriorityClassRef()


class PodSetAssignment(_Part, frozen=True):
    """Kueue's assignment for a set of pods that it admitted."""

    name: str = ""
    flavors: Mapping[str, str] = {}
    count: int | None = None
    topology_assignment: Mapping[str, Any] | None = None


class PodSetUpdate(_Part, frozen=True):
    """Changes that an admission check demands for the pods of a set."""

    name: str = ""
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    node_selector: Mapping[str, str] = {}
    tolerations: tuple[Any, ...] = ()


class AdmissionCheck(_Part, frozen=True):
    """The state of an admission check, by which another controller has to approve the admission."""

    pod_set_updates: tuple[PodSetUpdate, ...] = ()


class KueueAdmission(_Part, frozen=True):
    """The admission of a Kueue Workload, which exists while quota is reserved."""

    pod_set_assignments: tuple[PodSetAssignment, ...] = ()


class KueueStatus(_Part, frozen=True):
    """The status of a Kueue Workload."""

    conditions: tuple[StatusCondition, ...] = ()
    admission: KueueAdmission | None = None
    admission_checks: tuple[AdmissionCheck, ...] = ()


class KueueWorkloadObject(Object, frozen=True):
    """A Kueue Workload."""

    metadata: KueueMeta
    spec: KueueSpec = KueueSpec()
    status: KueueStatus = KueueStatus()


class FlavorSpec(_Part, frozen=True):
    """The spec of a ResourceFlavor: labels of its Kubernetes nodes, and tolerations that their pods get."""

    node_labels: Mapping[str, str] = {}
    tolerations: tuple[Any, ...] = ()


class FlavorObject(Object, frozen=True):
    """A Kueue ResourceFlavor: a kind of Kubernetes nodes."""

    spec: FlavorSpec = FlavorSpec()


class PriorityClassObject(Object, frozen=True):
    """A PriorityClass of pods, or a WorkloadPriorityClass of Kueue."""

    value: int = 0


class NodeStatus(_Part, frozen=True):
    """The status of a Kubernetes node."""

    conditions: tuple[StatusCondition, ...] = ()


class NodeObject(Object, frozen=True):
    """A Kubernetes node."""

    status: NodeStatus = NodeStatus()


class ConfigMapObject(Object, frozen=True):
    """A ConfigMap."""

    data: Mapping[str, str] = {}


class EventObject(Object, frozen=True):
    """A Kubernetes event."""

    reason: str = ""
    count: int = 1


class Status(_Part, frozen=True):
    """A Status: the API server's answer if there is no object to return, for example after an error."""

    code: int = 0
    reason: str = ""
    message: str = ""


class Identity(_Part, frozen=True):
    """The part of an object's metadata that identifies it and its version."""

    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""


class Unreadable(_Part, frozen=True):
    """An object of which only the identity can be read. The object exists, so the store keeps its last version."""

    metadata: Identity


class Change(_Part, frozen=True):
    """A line of a watch, with the type of the change, such as ADDED, and the object."""

    type: str
    object: msgspec.Raw


def decoder(kind: type[T]) -> msgspec.json.Decoder[T]:
    """Returns a decoder from JSON into this type."""
    return msgspec.json.Decoder(kind, dec_hook=_packed)


def read(document: Mapping[str, Any], kind: type[T]) -> T:
    """Converts decoded JSON into this type."""
    return msgspec.convert(dict(document), kind, dec_hook=_packed)


def _packed(kind: type, what: Any) -> Packed | JobAnnotations:
    return JobAnnotations(what) if kind is JobAnnotations else Packed(what)
