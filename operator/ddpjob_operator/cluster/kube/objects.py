"""Kubernetes objects as the API server sends them, as much of each as needed: the rest is skipped unread.

The names are Kubernetes' own: https://kubernetes.io/docs/reference/kubernetes-api/
"""

import zlib
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, TypeVar

import msgspec

from ddpjob_operator.api.contract import ASKED, DOMAIN, FINISHED

T = TypeVar("T")

Moment = Annotated[datetime, msgspec.Meta(tz=True)]
"""One without a time zone cannot be compared with others."""


class _Part(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """Unknown fields are ignored. There are no cycles here, so the garbage collector need not look at it."""


class OwnerReference(_Part, frozen=True):
    """To what controls the object, or to something else that it goes with."""

    uid: str
    api_version: str = ""
    kind: str = ""
    name: str = ""
    controller: bool = False


class ObjectMeta(_Part, frozen=True):
    """What every object has. A Status object, which an answer may be instead, has none of it."""

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
    """Any object."""

    metadata: ObjectMeta


SMALL_BYTES = 4 << 10
"""To compress so little would cost more time, at each change of each job, than it is worth in memory."""


class Packed:
    """A part of an object that may be large, kept as JSON, and compressed unless it is small.

    As dictionaries a template takes several times as much memory as its JSON; packed, usually a fraction of it.
    """

    __slots__ = ("_content", "has_nulls", "size")

    def __init__(self, what: Any) -> None:
        """Packs what JSON can express."""
        text = msgspec.json.encode(what)
        self.size = len(text)
        """Bytes of JSON."""
        self.has_nulls = b"null" in text
        """Whether there may be a null in it."""
        self._content = text if self._is_small else zlib.compress(text, level=1)

    def read(self) -> Any:
        """What is in it."""
        return msgspec.json.decode(self._content if self._is_small else zlib.decompress(self._content))

    @property
    def _is_small(self) -> bool:
        return self.size <= SMALL_BYTES


_NOTHING = Packed(None)


class JobAnnotations(_Part, frozen=True):
    """The annotations of a DDPJob that are ours."""

    finished: str = msgspec.field(default="", name=FINISHED)


class JobMeta(ObjectMeta, frozen=True):
    """Of a DDPJob."""

    annotations: JobAnnotations = JobAnnotations()


class JobObject(Object, frozen=True):
    """A DDPJob. It is packed as soon as it is read: a list of all jobs is never in memory unpacked."""

    metadata: JobMeta
    spec: Packed = _NOTHING
    status: Packed = _NOTHING


class StatusCondition(_Part, frozen=True):
    """What is said to be true or untrue of an object."""

    type: str
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: Moment | None = None


class ContainerStateRunning(_Part, frozen=True):
    """Of a container."""

    started_at: Moment | None = None


class ContainerStateWaiting(_Part, frozen=True):
    """Of a container."""

    reason: str = ""
    message: str = ""


class ContainerStateTerminated(_Part, frozen=True):
    """Of a container."""

    exit_code: int | None = None
    reason: str = ""
    message: str = ""
    started_at: Moment | None = None
    finished_at: Moment | None = None


class ContainerState(_Part, frozen=True):
    """One of these, or none."""

    running: ContainerStateRunning | None = None
    waiting: ContainerStateWaiting | None = None
    terminated: ContainerStateTerminated | None = None


class ContainerStatus(_Part, frozen=True):
    """What a kubelet says about a container."""

    name: str = ""
    state: ContainerState = ContainerState()


class PodSpec(_Part, frozen=True):
    """What is asked for."""

    node_name: str | None = None
    priority: int = 0
    active_deadline_seconds: int | None = None


class PodStatus(_Part, frozen=True):
    """What has happened to it."""

    phase: str = ""
    reason: str = ""
    message: str = ""
    pod_ip: str | None = msgspec.field(default=None, name="podIP")
    nominated_node_name: str = ""
    conditions: tuple[StatusCondition, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()


class PodAnnotations(_Part, frozen=True):
    """The annotations of a pod that are ours."""

    domain: str | None = msgspec.field(default=None, name=DOMAIN)


class PodMeta(ObjectMeta, frozen=True):
    """Of a pod."""

    annotations: PodAnnotations = PodAnnotations()


class PodObject(Object, frozen=True):
    """A pod."""

    metadata: PodMeta
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class PodGroupStatus(_Part, frozen=True):
    """What the scheduler says about a group of pods."""

    conditions: tuple[StatusCondition, ...] = ()
    phase: str = ""
    """Volcano's."""


class PodGroupObject(Object, frozen=True):
    """A PodGroup."""

    status: PodGroupStatus = PodGroupStatus()


class KueueAnnotations(_Part, frozen=True):
    """The annotations of a Workload of Kueue's that are ours."""

    asked: str = msgspec.field(default="", name=ASKED)


class KueueMeta(ObjectMeta, frozen=True):
    """Of a Workload of Kueue's."""

    annotations: KueueAnnotations = KueueAnnotations()


class PodSet(_Part, frozen=True):
    """Pods that are alike."""

    count: int = 1
    min_count: int | None = None


class PriorityClassRef(_Part, frozen=True):
    """A class by its name."""

    name: str = ""


class KueueSpec(_Part, frozen=True):
    """What is asked of a queue."""

    queue_name: str = ""
    pod_sets: tuple[PodSet, ...] = ()
    priority_class_ref: PriorityClassRef = PriorityClassRef()


class PodSetAssignment(_Part, frozen=True):
    """What pods that are alike were admitted with."""

    name: str = ""
    flavors: Mapping[str, str] = {}
    count: int | None = None
    topology_assignment: Mapping[str, Any] | None = None


class PodSetUpdate(_Part, frozen=True):
    """What else they are to have."""

    name: str = ""
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    node_selector: Mapping[str, str] = {}
    tolerations: tuple[Any, ...] = ()


class AdmissionCheck(_Part, frozen=True):
    """What others besides the queue have to say."""

    pod_set_updates: tuple[PodSetUpdate, ...] = ()


class KueueAdmission(_Part, frozen=True):
    """That a Workload has quota."""

    pod_set_assignments: tuple[PodSetAssignment, ...] = ()


class KueueStatus(_Part, frozen=True):
    """What Kueue says of a Workload."""

    conditions: tuple[StatusCondition, ...] = ()
    admission: KueueAdmission | None = None
    admission_checks: tuple[AdmissionCheck, ...] = ()


class KueueWorkloadObject(Object, frozen=True):
    """A Workload of Kueue's."""

    metadata: KueueMeta
    spec: KueueSpec = KueueSpec()
    status: KueueStatus = KueueStatus()


class FlavorSpec(_Part, frozen=True):
    """What Kubernetes nodes of a kind have in common."""

    node_labels: Mapping[str, str] = {}
    tolerations: tuple[Any, ...] = ()


class FlavorObject(Object, frozen=True):
    """A ResourceFlavor of Kueue's."""

    spec: FlavorSpec = FlavorSpec()


class PriorityClassObject(Object, frozen=True):
    """A priority class, of pods or of a queue."""

    value: int = 0


class NodeStatus(_Part, frozen=True):
    """What is known of a Kubernetes node."""

    conditions: tuple[StatusCondition, ...] = ()


class NodeObject(Object, frozen=True):
    """A Kubernetes node."""

    status: NodeStatus = NodeStatus()


class EventObject(Object, frozen=True):
    """An event."""

    reason: str = ""
    count: int = 1


class Status(_Part, frozen=True):
    """What the API server answers if there is no object to show."""

    code: int = 0
    reason: str = ""
    message: str = ""


class Identity(_Part, frozen=True):
    """Which object it is, at which version."""

    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""


class Unreadable(_Part, frozen=True):
    """An object of which nothing else can be read: it is there, and what was known of it still counts."""

    metadata: Identity


class Change(_Part, frozen=True):
    """A line of a watch."""

    type: str
    object: msgspec.Raw


def decoder(kind: type[T]) -> msgspec.json.Decoder[T]:
    """Reads JSON as one of these."""
    return msgspec.json.Decoder(kind, dec_hook=_packed)


def read(document: Mapping[str, Any], kind: type[T]) -> T:
    """Reads a document that is already decoded."""
    return msgspec.convert(dict(document), kind, dec_hook=_packed)


def _packed(_: type, what: Any) -> Packed:
    return Packed(what)
