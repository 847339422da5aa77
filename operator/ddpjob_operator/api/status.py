"""What the operator reports: `status`. It holds everything that the engine has to remember between two looks."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any, ClassVar

from pydantic import ConfigDict, Field, PlainSerializer
from pydantic_core import CoreSchema, core_schema

from .causes import Cause
from .contract import FORMER_VERSION, MAX_NODES, VERSION
from .model import Model, is_empty
from .restart import RestartAction
from .spec import Backend, NetworkPolicy

Time = Annotated[
    datetime,
    PlainSerializer(lambda time: time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"), when_used="json"),
]
"""A time as Kubernetes' MicroTime: with whole seconds, a backoff of one second could be lost."""


UNSEEN = {"observedGeneration": -1, "state": "Pending"}
"""The status of a job that no operator has looked at yet: tools that wait for it (kstatus) would else take it for one
that is as it should be."""

MAX_INCIDENTS = 10
MAX_AVOIDED = 8
MAX_EXCEPTIONS = 64
MAX_STRAGGLERS = 8
MAX_INDEXES = len(f"{MAX_NODES - 1},") * 2 * -(-MAX_NODES // 3)
"""Characters for two of every three nodes in the largest job: three or more in a row are written shorter."""


WORD = "^[A-Z][A-Za-z0-9]*$"
"""The form of words in the status, including those of newer versions."""
TYPE = "^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$"
REASON = "^([A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?)?$"
"""The form of types and reasons of conditions, as in Kubernetes' own."""


def _by(key: str) -> dict[str, Any]:
    """A list whose items are distinguished by a key."""
    return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [key]}


@dataclass(frozen=True)
class _Open:
    """Marks a word in the status: one that this version does not know was written by a newer one, and is kept."""

    known: type[StrEnum]
    pattern: str = WORD
    max_length: int = 64

    def __get_pydantic_core_schema__(self, _source: Any, _handler: Any) -> CoreSchema:
        """Reads known words as members of the enum, and others as text."""
        words: dict[str, str] = {word.value: word for word in self.known}
        as_text = core_schema.to_string_ser_schema()
        return core_schema.no_info_after_validator_function(
            lambda value: words.get(value, value), core_schema.str_schema(), serialization=as_text
        )

    def __get_pydantic_json_schema__(self, _schema: CoreSchema, _handler: Any) -> dict[str, Any]:
        """Text; the words of this version are its `examples`."""
        return {
            "type": "string",
            "pattern": self.pattern,
            "maxLength": self.max_length,
            "examples": [*self.known],
        }


class _Said(Model):
    """What an operator wrote. An older version keeps what it does not know, and writes it back."""

    model_config = ConfigDict(extra="allow")

    KEY: ClassVar[str] = ""
    """The field that distinguishes it from others, in a list or one after the other."""


class ConditionType(StrEnum):
    """Conditions of a job. Several can be true at once; `State` is the one word for all of them."""

    BLOCKED = "Blocked"
    """Something outside the job keeps its pods from being created: a quota, a policy, a name that is taken."""
    QUEUED = "Queued"
    """The job waits until its queue (Kueue) admits it; the reason is Kueue's, such as WaitingForQuota."""
    CREATED = "Created"
    """The Service and all pods of this attempt exist."""
    RUNNING = "Running"
    """The trainer runs in every pod."""
    RESTARTING = "Restarting"
    """An incident ended the last attempt, and the next one is not running yet."""
    TRAINING_STALLED = "TrainingStalled"
    """The ranks are running, but no step finishes any more."""
    PROGRESS_UNKNOWN = "ProgressUnknown"
    """Rank 0's supervisor has stopped answering the operator. Training may still be going on."""
    LOSS_NOT_FINITE = "LossNotFinite"
    """The last loss that the program reported is NaN or infinite. What follows from that is up to the program."""
    STARTED_OVER = "StartedOver"
    """The last attempt that made a step began where the job began, although former attempts had got further."""
    SUSPENDED = "Suspended"
    """`suspend` is set, and nothing is running."""
    SUCCESS_CRITERIA_MET = "SuccessCriteriaMet"
    """The ranks that successPolicy asks for have exited with 0; what still runs is being stopped."""
    FAILURE_TARGET = "FailureTarget"
    """The job will fail; what still runs is being stopped."""
    COMPLETE = "Complete"
    """Done, and nothing of the job is running any more. Final."""
    FAILED = "Failed"
    """Given up, and nothing of the job is running any more. Final."""
    RECONCILING = "Reconciling"
    """For tools that wait for objects of any kind (kstatus): the job is on its way, to running or to its end. It is
    left out while that is not so."""
    STALLED = "Stalled"
    """For the same tools: the job has failed, or is blocked by what only a person can change. It is left out
    while that is not so."""


class State(StrEnum):
    """What a job is doing, in one word."""

    PENDING = "Pending"
    """Nothing is running yet: the pods have yet to be created."""
    QUEUED = "Queued"
    """The job waits until its queue admits it; what runs of it is saving and stopping."""
    STARTING = "Starting"
    """All pods exist, but not all are running yet."""
    RUNNING = "Running"
    """The trainer is running in every pod, or has already succeeded there."""
    STALLED = "Stalled"
    """All ranks are running, but no step finishes any more."""
    RESTARTING = "Restarting"
    """The last attempt ended early, and the next one is not running yet."""
    SUSPENDING = "Suspending"
    """Suspension was requested; the pods are saving and stopping."""
    SUSPENDED = "Suspended"
    """Nothing runs until the job is resumed."""
    SUCCEEDED = "Succeeded"
    """Every rank has exited with 0 or, with successPolicy RankZero, rank 0 has. Final."""
    FAILED = "Failed"
    """Given up. Final."""


class PodSecurity(StrEnum):
    """What pods get unless their template says otherwise: a setting of the operator."""

    RESTRICTED = "Restricted"
    """All that Kubernetes' restricted Pod Security Standard requires, and a home directory that its user can write
    to."""
    NONE = "None"
    """Nothing: user, rights and home directory are up to the image and the cluster."""


class Condition(_Said):
    """One condition, as the Kubernetes API conventions have it."""

    KEY = "type"

    type: Annotated[ConditionType | str, _Open(ConditionType, TYPE, 316)]
    """Its name."""
    status: Annotated[str, Field(pattern="^(True|False|Unknown)$")]
    """Whether the condition holds."""
    reason: Annotated[str, Field(max_length=128, pattern=REASON)]
    """Why, in one CamelCase word for programs."""
    message: Annotated[str, Field(max_length=1024)]
    """Why, in a sentence for people."""
    last_transition_time: Time
    """When `status` last changed."""
    observed_generation: int
    """The `metadata.generation` of the spec that the condition refers to."""


class NodeIncarnation(_Said):
    """Which pod of one node is the present one."""

    KEY = "node"

    node: int
    """The node's number."""
    incarnation: int
    """How many pods the node has had."""


class Incarnations(_Said):
    """Which pod of each node is the present one."""

    default: int = 0
    """How many pods every node has had. A pod with a lower number is a previous one."""
    exceptions: Annotated[
        tuple[NodeIncarnation, ...], Field(max_length=MAX_EXCEPTIONS, json_schema_extra=_by("node"))
    ] = ()
    """Nodes that have had more, because only their own pod was lost and replaced."""
    former: int = 0
    """The value of `default` before the gang last started as a whole."""

    def of(self, node: int) -> int:
        """The number of a node's present pod."""
        if not self.exceptions:  # Nearly always, and this is called for each pod.
            return self.default
        return next((one.incarnation for one in self.exceptions if one.node == node), self.default)

    @property
    def newest(self) -> int:
        """The largest of them."""
        return max((self.default, *(one.incarnation for one in self.exceptions)))

    def renewed(self) -> "Incarnations":
        """Every node gets a new pod."""
        return Incarnations(default=self.newest + 1, former=self.default)

    def replaced(self, nodes: Iterable[int]) -> "Incarnations":
        """These nodes get a new pod."""
        more = {one.node: one.incarnation for one in self.exceptions} | {node: self.of(node) + 1 for node in nodes}
        exceptions = (NodeIncarnation(node=node, incarnation=more[node]) for node in sorted(more))
        return self.model_copy(update={"exceptions": tuple(exceptions)})


class Budget(_Said):
    """How much of the restart budget has been used since the job was last healthy for windowSeconds."""

    used: int = 0
    """Restarts that count against maxRestarts."""
    disruptions: int = 0
    """Restarts that count against maxDisruptions."""
    streak: int = 0
    """Incidents of any kind since training last got further than it was at the one before; the exponent of the
    backoff."""


class Incident(_Said):
    """An incident: the rank that failed first, why, and what followed from it."""

    KEY = "attempt"

    time: Time
    """When the rank's process ended or, if that is unknown, when its failure was noticed."""
    attempt: int
    """The attempt that the incident ended."""
    node: int
    """Number of the node that failed first: the one in its pod's name."""
    rank: int | None = None
    """RANK of the process that failed first, if that is known: where a node has several, the program, its supervisor
    or torchrun has to say it."""
    pod: str
    """The pod of that node."""
    node_name: str | None = None
    """The Kubernetes node that it ran on, if known."""
    cause: Annotated[Cause | str, _Open(Cause)]
    """Why."""
    exit_code: int | None = None
    """The process's own exit code, or 128+n if signal n ended it."""
    signal: Annotated[str, Field(pattern="^SIG[A-Z0-9]+$", max_length=16)] | None = None
    """The signal that ended it, by name as in rules: `SIGKILL`."""
    message: Annotated[str, Field(max_length=512)] = ""
    """The program's last words: usually the last line of its exception."""
    step: int | None = None
    """The last step that the rank had finished or, if it reports none, the last that any other rank reports. After a
    disruption: how far training is known to have come."""
    at_start: bool = False
    """No step had finished before it. If no steps are reported: all ranks had run for less than a minute, or for less
    than ten minutes if the process ended with exit code 2, a usage error."""
    tied: bool = False
    """Another rank failed in the same way at the same moment, so which came first is unknown."""
    action: Annotated[RestartAction | str, _Open(RestartAction)] = RestartAction.RESTART
    """What was decided about it."""
    rule: Annotated[str, Field(max_length=64)] = ""
    """What decided that: a rule, such as `spec.restart.rules[0]`; `default`; or `spec.suspend`, if the job went on
    because it was resumed, or the label of its queue, if it was admitted again."""
    consequences: int = 0
    """How many other nodes failed with it."""
    consequence_nodes: Annotated[
        tuple[int, ...], Field(max_length=8, json_schema_extra={"x-kubernetes-list-type": "atomic"})
    ] = ()
    """The first eight of these nodes, by number."""

    @property
    def who(self) -> str:
        """Which rank failed first, in words: with its node's number if that is another, or all that is known."""
        return in_words(self.node, self.rank)


def in_words(node: int, rank: int | None) -> str:
    """A rank, with its node's number if that is another; the node alone, if it is not known which of its ranks."""
    if rank is None:
        return f"node {node}"
    return f"rank {rank}" if rank == node else f"rank {rank} (node {node})"


class AvoidedNodeName(_Said):
    """A Kubernetes node that pods are kept away from."""

    KEY = "node_name"

    node_name: Annotated[str, Field(max_length=253)]
    """Its name."""
    until: Time
    """When pods may be placed on it again."""


class Progress(_Said):
    """How far training has come, as rank 0's supervisor reports it."""

    attempt: int | None = None
    """The attempt that finished these steps; not set if its supervisor does not say so."""
    since: Time | None = None
    """When the first step of that attempt was finished."""
    first_step: int | None = None
    """The first step that was finished in that attempt; not set if its number is unknown."""
    begins: Annotated[str, Field(pattern=WORD, max_length=64)] | None = None
    """Where the program began in that attempt, by its own account: FromCheckpoint, AsAsked (at the beginning), or
    NothingSaved (also there, since it found no checkpoint)."""
    recounts: bool = False
    """Whether the program has counted its steps again from a lower number within an attempt, such as in each epoch:
    then they do not say where an attempt began."""
    epoch: int | None = None
    """The current epoch, from 1."""
    step: int | None = None
    """Steps finished so far, in all epochs together."""
    steps_since_restart: int | None = None
    """Steps finished since the last restart, for a program that reports no step numbers: nobody knows at which step
    it resumed."""
    total_steps: int | None = None
    """How many steps there will be in total."""
    percent: float | None = None
    """Percentage of these steps that is finished."""
    eta_seconds: int | None = None
    """Seconds that are left, at the current speed."""
    loss: float | None = None
    """The last loss that was reported, if it is a finite number."""
    loss_not_finite: Annotated[str, Field(pattern="^(NaN|-?Infinity)$", max_length=9)] | None = None
    """What it is otherwise: NaN, Infinity or -Infinity."""
    loss_not_finite_since_step: int | None = None
    """The step at which it was first seen to be so."""
    samples_per_second: float | None = None
    """Samples per second of all ranks together."""
    last_step_time: Time | None = None
    """When the last step finished."""
    slowest_node: int | None = None
    """Number of the node with the most work of its own in a step."""


class CheckpointSeen(_Said):
    """The last checkpoint that is complete."""

    KEY = "step"

    step: int
    """The step after which it was saved."""
    time: Time | None = None
    """When it was saved."""


class Straggler(_Said):
    """A node with a process that is slower than the others."""

    KEY = "node"

    node: int
    """Its number."""
    node_name: str | None = None
    """The Kubernetes node that it runs on."""
    slowdown: float
    """How many times as long as usual its own part of a step takes."""


class NetworkStatus(_Said):
    """The network settings of the present pods."""

    master_port: int | None = None
    """Port on which rank 0 waits for the other ranks."""
    status_port: int | None = None
    """Port of the supervisors' status pages."""
    control_port: int | None = None
    """Port on which supervisors talk to each other."""
    policy: Annotated[NetworkPolicy | str, _Open(NetworkPolicy)] | None = None
    """What `spec.network.policy` says or, if it is not set, the operator's setting when the job first started."""
    service: Annotated[str, Field(max_length=63)] | None = None
    """Name of the Service by which the pods find rank 0."""


class DisplayStatus(_Said):
    """What a table shows of the job, in the form in which it shows it."""

    ready: Annotated[str, Field(max_length=16)] = ""
    """`readyNodes` out of all nodes: `2/2`."""
    progress: Annotated[str, Field(max_length=32)] = ""
    """How far training has come: `30%`; `step 120` if the total is unknown; or `12 since restart`."""
    eta: Annotated[str, Field(max_length=16)] = ""
    """`progress.etaSeconds`, while the job runs: `56s`, `1h5m`, `3d4h`."""


class Steps(_Said):
    """What is remembered of the steps of all attempts."""

    earliest: int | None = None
    """The smallest `progress.firstStep`."""
    furthest: int | None = None
    """The largest `progress.step`."""
    saved: int | None = None
    """The step of the last checkpoint that was reported, even if it has been lost since."""


class Bookkeeping(_Said):
    """What the operator has to remember between two looks.

    Its fields may change in any release; programs should not rely on them.
    """

    version: Annotated[str, Field(max_length=16)] = VERSION
    """The version of the type in which the job was begun. One that lives and was begun in a former one is left
    alone."""
    incarnations: Incarnations = Incarnations()
    """Distinguishes the present pods from previous ones."""
    budget: Budget = Budget()
    """How much of the restart budget has been used."""
    supervised: bool = False
    """Whether a supervisor in rank 0's pod has answered since the gang last started as a whole."""
    suspend_time: Time | None = None
    """When the job was told to save and stop, or not to start; cleared when it starts again."""
    last_completed_time: Time | None = None
    """When the last of the nodes in `completedIndexes` finished."""
    steps: Steps = Steps()
    """Shows whether an attempt has started over."""


class DDPJobStatus(_Said):
    """The job as last seen, and all that the next look must know about the past."""

    observed_generation: int = 0
    """The `metadata.generation` of the spec that this status refers to."""
    state: Annotated[State | str, _Open(State)] = State.PENDING
    """What the job is doing, in one word."""
    reason: Annotated[str, Field(max_length=128, pattern=REASON)] = ""
    """Why, in one word: the reason of the condition that says most."""
    message: Annotated[str, Field(max_length=1024)] = ""
    """What the job is doing or waiting for, in one sentence."""
    display: DisplayStatus = DisplayStatus()
    """The columns of `kubectl get ddp` that are text of their own. The form may change in any release."""
    ready_nodes: int = 0
    """Number of pods whose trainer is running, or has succeeded; one whose supervisor has fallen silent is not
    counted. Of a finished job: as it was at the end."""
    completed_indexes: Annotated[
        str, Field(max_length=MAX_INDEXES, pattern=r"^([0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*)?$")
    ] = ""
    """The nodes that have finished since the gang last started as a whole, by number, in the format of an Indexed
    Job: `0,3-5`. They remain finished when their pods are removed."""
    attempt: int = 0
    """How often the gang has been started."""
    selector: str = ""
    """Label selector of the job's pods, for autoscalers."""
    nodes: int | None = None
    """Current number of nodes. This, the next two fields and `network` are fixed when the gang starts."""
    procs_per_node: int | None = None
    """Processes on each node: the number that `spec.procsPerNode` stands for."""
    backend: Annotated[Backend | str, _Open(Backend)] | None = None
    """The backend that `spec.backend` stands for."""
    network: NetworkStatus = NetworkStatus()
    """The network settings of the present pods: what `spec.network` says, or what stands for what it leaves out."""
    pod_security: Annotated[PodSecurity | str, _Open(PodSecurity)] | None = None
    """The operator's setting when the job started or was last resumed."""
    trainer_image: str | None = None
    """The image for containers whose template names none: the operator's setting when the job first started."""
    pod_group: Annotated[str, Field(max_length=63)] | None = None
    """Name of the PodGroup by which the cluster's scheduler places the present pods, and of its Workload; not set if
    the operator could make none when the gang last started as a whole."""
    progress: Progress | None = None
    """How far training has come; updated every ten seconds at most."""
    checkpoint: CheckpointSeen | None = None
    """The last checkpoint that is complete."""
    stragglers: Annotated[tuple[Straggler, ...], Field(max_length=MAX_STRAGGLERS, json_schema_extra=_by("node"))] = ()
    """Nodes that are slow, the slowest first."""
    restarts: int = 0
    """Restarts that counted against the budget, in the job's whole life."""
    disruptions: int = 0
    """Restarts that did not count, in the job's whole life: mostly after disruptions."""
    start_time: Time | None = None
    """When the job became active; cleared by suspension."""
    first_run_time: Time | None = None
    """When all ranks first ran after startTime."""
    backoff_until: Time | None = None
    """The next attempt does not start before this time."""
    completion_time: Time | None = None
    """When the job succeeded or failed."""
    incidents: Annotated[
        tuple[Incident, ...], Field(max_length=MAX_INCIDENTS, json_schema_extra={"x-kubernetes-list-type": "atomic"})
    ] = ()
    """The last ten incidents, the newest first: which rank failed first each time, and why."""
    avoided_node_names: Annotated[
        tuple[AvoidedNodeName, ...], Field(max_length=MAX_AVOIDED, json_schema_extra=_by("nodeName"))
    ] = ()
    """Kubernetes nodes that were lost lately: pods are placed elsewhere if possible."""
    conditions: Annotated[tuple[Condition, ...], Field(max_length=24, json_schema_extra=_by("type"))] = ()
    """What is true of the job, and since when."""
    bookkeeping: Bookkeeping = Bookkeeping()
    """What the operator has to remember between two looks. Its fields may change in any release; programs should not
    rely on them."""

    def to_dict(self) -> dict[str, object]:
        """The status as it is written: what is empty is left out, as Kubernetes does in a status of its own."""
        lean: dict[str, object] = _lean(super().to_dict())
        return lean

    def condition(self, kind: str) -> Condition | None:
        """The condition of that type, if it was ever set."""
        # Each decision asks dozens of times, and a generator would take twice as long.
        for condition in self.conditions:
            if condition.type == kind:
                return condition
        return None

    def is_true(self, kind: ConditionType) -> bool:
        """Whether the condition of that type is set and true."""
        for condition in self.conditions:  # Each decision asks some fifty times, and a call would take as long again.
            if condition.type == kind:
                return condition.status == "True"
        return False

    def message_while_true(self, kind: ConditionType) -> str:
        """The message of the condition of that type while it is true; otherwise empty."""
        condition = self.condition(kind)
        return condition.message if condition is not None and condition.status == "True" else ""

    def completed(self) -> frozenset[int]:
        """The numbers of nodes in `completedIndexes` that the job has."""
        ends = (run.partition("-") for run in self.completed_indexes.split(",") if run)
        runs = (range(int(first), min(int(last or first) + 1, self.nodes or 0)) for first, _, last in ends)
        return frozenset(node for run in runs for node in run)

    @property
    def last_incident(self) -> Incident | None:
        """The newest incident, if there was any."""
        return self.incidents[0] if self.incidents else None

    @property
    def former(self) -> bool:
        """Whether a release with a former version of the type began the job."""
        return self.bookkeeping.version in {FORMER_VERSION, ""}

    @property
    def ending(self) -> bool:
        """Whether it is decided that the job ends; unless it has finished, its pods are still being stopped."""
        return self.is_true(ConditionType.SUCCESS_CRITERIA_MET) or self.is_true(ConditionType.FAILURE_TARGET)

    @property
    def succeeded(self) -> bool:
        """Whether the job has succeeded."""
        return self.is_true(ConditionType.COMPLETE)

    @property
    def finished(self) -> bool:
        """Whether the job has reached one of its two ends."""
        return self.succeeded or self.is_true(ConditionType.FAILED)

    def kept_in(self, after: "DDPJobStatus") -> "DDPJobStatus":
        """The status that follows this one, with everything in this one that this version has no field for."""
        kept: DDPJobStatus = _kept(self, after)
        return kept


def _lean(written: Any) -> Any:
    """What is written, without fields that say no more than their absence does: at all depths, in all versions."""
    # There are some hundred, most of them plain: no call for each.
    if isinstance(written, dict):
        return {
            name: _lean(value) if isinstance(value, (dict, list)) else value
            for name, value in written.items()
            if not is_empty(value)
        }
    return [_lean(one) if isinstance(one, (dict, list)) else one for one in written]


def _kept(before: Any, after: Any) -> Any:
    """The new value with the fields of the old one that only a newer version knows, at all depths."""
    if before is after:
        return after
    if isinstance(after, _Said) and isinstance(before, _Said):
        if after.KEY and getattr(before, after.KEY) != getattr(after, after.KEY):
            return after  # Another one, such as the next incident.
        old = vars(before)
        # Nearly all fields are the same objects, and this is done for each new status.
        fields = ((name, old[name], now) for name, now in vars(after).items() if old[name] is not now)
        changes = {name: kept for name, was, now in fields if (kept := _kept(was, now)) is not now}
        unknown, said = before.model_extra or {}, after.model_extra or {}
        changes |= {name: value for name, value in unknown.items() if name not in said}
        return after.model_copy(update=changes) if changes else after
    if isinstance(after, tuple) and isinstance(before, tuple):
        known = {getattr(one, one.KEY): one for one in before if isinstance(one, _Said)}
        items = tuple(_kept(known.get(getattr(one, one.KEY)), one) if known else one for one in after)
        return after if all(kept is one for kept, one in zip(items, after, strict=True)) else items
    return after
