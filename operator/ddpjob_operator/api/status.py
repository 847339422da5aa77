"""The field `status`: the operator's report, which also holds all that the engine remembers between two decisions."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any, ClassVar

from pydantic import ConfigDict, Field, PlainSerializer
from pydantic_core import CoreSchema, core_schema

from .causes import Cause
from .contract import FORMER_VERSION, HISTORY_FOLDER, LONGEST_REQUEST, MAX_NODES, VERSION
from .default_settings import DefaultSettings
from .inheritance import LONGEST_VALUE, MOST_INHERITED
from .model import Model, is_empty
from .restart import RestartAction
from .spec import MAX_PLACE, Backend, NetworkPolicy, PodSecurity

Time = Annotated[
    datetime,
    PlainSerializer(lambda time: time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"), when_used="json"),
]
"""A time in the format of Kubernetes' MicroTime. With whole seconds, a backoff of one second could be lost."""


UNSEEN = {"observedGeneration": -1, "state": "Pending"}
"""The status of a job that no operator has processed yet. Without it, tools that wait for objects (kstatus) would
consider such a job ready."""

MAX_OPERATOR = 63 + len("/") + 253
"""The length of a Lease's namespace and name."""
MAX_INCIDENTS = 10
MAX_AVOIDED = 8
MAX_EXCEPTIONS = 64
MAX_STRAGGLERS = 8
MAX_RESULT = 2048
"""The largest result, in bytes."""
MAX_RESULT_PLACE = 1024
PLACE = "^[a-z0-9][-a-z0-9._]*(/[a-z0-9][-a-z0-9._]*)*$"
"""The pattern of a file below a history: no part of it leads upwards."""
MAX_INDEXES = len(f"{MAX_NODES - 1},") * 2 * -(-MAX_NODES // 3)
"""The length of the longest list of nodes. It contains two of every three nodes of the largest job, because three in
a row are written as a range, which is shorter."""


CLASS = "^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$"
"""The pattern for the value of a label."""
WORD = "^[A-Z][A-Za-z0-9]*$"
"""The pattern for enum values in the status, including values from newer versions."""
TYPE = "^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$"
REASON = "^([A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?)?$"
"""The patterns for the types and reasons of conditions, as in Kubernetes' own conditions."""


def _by(key: str) -> dict[str, Any]:
    """Returns schema keywords for a list whose items are identified by a key."""
    return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [key]}


@dataclass(frozen=True)
class _Open:
    """Marks an enum in the status that keeps unknown values, because a newer version may have written them."""

    known: type[StrEnum]
    pattern: str = WORD
    max_length: int = 64

    def __get_pydantic_core_schema__(self, _source: Any, _handler: Any) -> CoreSchema:
        """Parses known values as members of the enum, and other values as text."""
        words: dict[str, str] = {word.value: word for word in self.known}
        as_text = core_schema.to_string_ser_schema()
        return core_schema.no_info_after_validator_function(
            lambda value: words.get(value, value), core_schema.str_schema(), serialization=as_text
        )

    def __get_pydantic_json_schema__(self, _schema: CoreSchema, _handler: Any) -> dict[str, Any]:
        """Returns the schema of a string, with the values of this version as `examples`."""
        return {
            "type": "string",
            "pattern": self.pattern,
            "maxLength": self.max_length,
            "examples": [*self.known],
        }


Marks = dict[str, Annotated[str, Field(max_length=LONGEST_VALUE)]]


class _Said(Model):
    """A part of the status. Unknown fields, which a newer version has written, are kept and written back."""

    model_config = ConfigDict(extra="allow")

    KEY: ClassVar[str] = ""
    """The field that identifies a value in a list, or distinguishes it from its successor; empty if no field does."""


class ConditionType(StrEnum):
    """The conditions of a job. Several can be true at the same time. `State` summarises them in one word."""

    BLOCKED = "Blocked"
    """Something outside the job keeps its pods from being created: a quota, a policy, a name that is taken."""
    QUEUED = "Queued"
    """The job waits until its queue (Kueue) admits it. The reason is Kueue's, such as WaitingForQuota."""
    CREATED = "Created"
    """The Service and all pods of this attempt exist."""
    RUNNING = "Running"
    """The trainer runs in every pod."""
    RESTARTING = "Restarting"
    """An incident ended the last attempt, and the next one is not running yet."""
    TRAINING_STALLED = "TrainingStalled"
    """The ranks are running, but no step finishes any more."""
    AWAITING_FIRST_STEP = "AwaitingFirstStep"
    """The attempt has run for minutes without a step. It starts slowly, hangs, or has steps that nobody can count."""
    PROGRESS_UNKNOWN = "ProgressUnknown"
    """Rank 0's supervisor has stopped answering the operator. Training may still be going on."""
    LOSS_NOT_FINITE = "LossNotFinite"
    """The last loss that the program reported is NaN or infinite. What follows from that is up to the program."""
    STARTED_OVER = "StartedOver"
    """The last attempt that finished a step started over, although an earlier attempt had got further."""
    NEW_CODE_FAILED = "NewCodeFailed"
    """The code that `spec.code` names failed before its first step, so the job goes on with its former code."""
    SUSPENDED = "Suspended"
    """`suspend` is set, and nothing is running."""
    SUCCESS_CRITERIA_MET = "SuccessCriteriaMet"
    """The ranks that successPolicy requires have exited with 0, and all other ranks are being stopped."""
    FAILURE_TARGET = "FailureTarget"
    """The job will fail, and its remaining pods are being stopped."""
    COMPLETE = "Complete"
    """The job has succeeded, and none of its pods is running any more. Final."""
    FAILED = "Failed"
    """The job has failed, and none of its pods is running any more. Final."""
    RECONCILING = "Reconciling"
    """For tools that wait for objects of any kind (kstatus): the job is about to run, or about to end. At other times
    the condition is absent."""
    STALLED = "Stalled"
    """For the same tools: the job has failed, or is blocked by something that only a person can change. At other
    times the condition is absent."""


class State(StrEnum):
    """What a job is doing, in one word."""

    PENDING = "Pending"
    """Nothing is running, because the pods have not been created yet."""
    QUEUED = "Queued"
    """The job waits until its queue admits it. Pods that still run are saving and stopping."""
    STARTING = "Starting"
    """All pods exist, but not all are running yet."""
    RUNNING = "Running"
    """The trainer is running in every pod, or has already succeeded there."""
    STALLED = "Stalled"
    """All ranks are running, but no step finishes any more."""
    RESTARTING = "Restarting"
    """The last attempt ended early, and the next one is not running yet."""
    SUSPENDING = "Suspending"
    """Suspension was requested, and the pods are saving and stopping."""
    SUSPENDED = "Suspended"
    """Nothing runs until the job is resumed."""
    SUCCEEDED = "Succeeded"
    """Every rank has exited with 0 or, with successPolicy RankZero, rank 0 has. Final."""
    FAILED = "Failed"
    """The job has failed. Final."""


class Condition(_Said):
    """A condition, as defined by the Kubernetes API conventions."""

    KEY = "type"

    type: Annotated[ConditionType | str, _Open(ConditionType, TYPE, 316)]
    """The condition's name."""
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
    """The incarnation of one node's present pod."""

    KEY = "node"

    node: int
    """The node's number."""
    incarnation: int
    """How many pods the node has had."""


class Incarnations(_Said):
    """The incarnation of each node's present pod."""

    default: int = 0
    """How many pods every node has had. A pod with a lower incarnation is a previous pod."""
    exceptions: Annotated[
        tuple[NodeIncarnation, ...], Field(max_length=MAX_EXCEPTIONS, json_schema_extra=_by("node"))
    ] = ()
    """Nodes that have had more pods, because only their own pod was lost and replaced."""
    former: int = 0
    """The value of `default` before the gang last started as a whole."""

    def of(self, node: int) -> int:
        """Returns the incarnation of a node's present pod."""
        if not self.exceptions:  # True nearly always. The shortcut matters, because this is called for each pod.
            return self.default
        return next((entry.incarnation for entry in self.exceptions if entry.node == node), self.default)

    @property
    def newest(self) -> int:
        """The largest incarnation of any node."""
        return max((self.default, *(entry.incarnation for entry in self.exceptions)))

    def renewed(self) -> "Incarnations":
        """Returns the incarnations after every node has got a new pod."""
        return Incarnations(default=self.newest + 1, former=self.default)

    def replaced(self, nodes: Iterable[int]) -> "Incarnations":
        """Returns the incarnations after these nodes have got a new pod."""
        more = {item.node: item.incarnation for item in self.exceptions} | {node: self.of(node) + 1 for node in nodes}
        exceptions = (NodeIncarnation(node=node, incarnation=more[node]) for node in sorted(more))
        return self.model_copy(update={"exceptions": tuple(exceptions)})


class Budget(_Said):
    """How much of the restart budget has been used since the job was last healthy for windowSeconds."""

    used: int = 0
    """Restarts that count against maxRestarts."""
    disruptions: int = 0
    """Restarts that count against maxDisruptions."""
    streak: int = 0
    """Incidents of any kind since training last got further than at the previous incident. The backoff grows with
    this number."""


class Incident(_Said):
    """An incident: the rank that failed first, why, and what followed from it."""

    KEY = "attempt"

    time: Time
    """When the rank's process ended or, if that is unknown, when its failure was noticed."""
    attempt: int
    """The attempt that the incident ended."""
    node: int
    """Number of the node that failed first, as in its pod's name."""
    rank: int | None = None
    """RANK of the process that failed first, if known: on a node with several processes, the program, its supervisor
    or torchrun has to report it."""
    pod: str
    """The pod of that node."""
    node_name: str | None = None
    """The Kubernetes node that the pod ran on, if known."""
    cause: Annotated[Cause | str, _Open(Cause)]
    """Why the rank failed."""
    exit_code: int | None = None
    """The process's exit code, or 128+n if signal n ended it."""
    signal: Annotated[str, Field(pattern="^SIG[A-Z0-9]+$", max_length=16)] | None = None
    """The signal that ended the process, by name as in rules: `SIGKILL`."""
    message: Annotated[str, Field(max_length=512)] = ""
    """The program's last message, which is usually the last line of its exception."""
    step: int | None = None
    """The last step that the rank had finished or, if it reports no steps, the last that another rank reported. After
    a disruption: the last step that is known to have finished."""
    steps_since_restart: int | None = None
    """How many steps the rank had finished since the last restart, if steps are only counted."""
    at_start: bool = False
    """Whether no step had finished before the incident. If no steps are reported: whether all ranks had run for less
    than a minute, or less than ten minutes if the process ended with exit code 2, a usage error."""
    tied: bool = False
    """Whether another rank failed in the same way at the same moment, so that it is unknown which failed first.

    After a stall that supervisors reported: whether no rank stands out as its cause.
    """
    action: Annotated[RestartAction | str, _Open(RestartAction)] = RestartAction.RESTART
    """What followed from the incident."""
    rule: Annotated[str, Field(max_length=64)] = ""
    """What decided the action: a rule, such as `spec.restart.rules[0]`; `default`; `spec.suspend`, if the job
    continued because it was resumed; or the label of its queue, if the job continued because it was admitted
    again."""
    consequences: int = 0
    """How many other nodes failed as a consequence."""
    consequence_nodes: Annotated[
        tuple[int, ...], Field(max_length=8, json_schema_extra={"x-kubernetes-list-type": "atomic"})
    ] = ()
    """The first eight nodes that failed as a consequence, by number."""

    @property
    def who(self) -> str:
        """The rank that failed first, in words as from `in_words`; or `all ranks`."""
        of_all = is_of_all_ranks(self.cause, self.exit_code, tied=self.tied)
        return ALL_RANKS if of_all else in_words(self.node, self.rank)


ALL_RANKS = "all ranks"


def is_of_all_ranks(cause: Cause | str, exit_code: int | None, *, tied: bool) -> bool:
    """Whether a gang stalled, and no rank stands out as the cause.

    Only stalls that supervisors report have an exit code. A rank that does not finish in time has none, and is itself
    the cause.
    """
    return tied and cause == Cause.STALLED and exit_code is not None


def in_words(node: int, rank: int | None) -> str:
    """Formats a rank as `rank 2`, or `rank 5 (node 2)` if the numbers differ, or `node 2` if the rank is unknown."""
    if rank is None:
        return f"node {node}"
    return f"rank {rank}" if rank == node else f"rank {rank} (node {node})"


class AvoidedNodeName(_Said):
    """A Kubernetes node that pods are kept away from."""

    KEY = "node_name"

    node_name: Annotated[str, Field(max_length=253)]
    """The Kubernetes node's name."""
    until: Time
    """When pods may be placed on this Kubernetes node again."""
    pod: Annotated[str, Field(max_length=63)] = ""
    """The last of the job's pods that could not be used there."""
    cause: Annotated[Cause | str, _Open(Cause)] | None = None
    """Why the pod could not be used there. Not set if it merely did not start to run."""
    required: bool = False
    """Whether no pod may be placed there, because a device failed, or a pod was lost although the job already avoided
    this Kubernetes node. If not set, other Kubernetes nodes are only preferred."""


class Progress(_Said):
    """How far training has come, as rank 0's supervisor reports it."""

    attempt: int | None = None
    """The attempt that finished these steps; not set if its supervisor does not report it."""
    since: Time | None = None
    """When the first step of that attempt was finished."""
    first_step: int | None = None
    """The first step that was finished in that attempt; not set if its number is unknown."""
    begins: Annotated[str, Field(pattern=WORD, max_length=64)] | None = None
    """Where the program says that it began in that attempt: FromCheckpoint, AsAsked (at the first step, as it was
    told to), or NothingSaved (at the first step, because it found no checkpoint)."""
    activity: Annotated[str, Field(pattern=WORD, max_length=64)] | None = None
    """What the program does between two steps: Evaluating or Saving; not set while it trains."""
    activity_time: Time | None = None
    """When the program last reported an activity that takes long, as it may after each batch of an evaluation."""
    recounts: bool = False
    """Whether the program has counted its steps again from a lower number within an attempt, such as in each epoch.
    If so, step numbers do not show where an attempt began."""
    epoch: int | None = None
    """The current epoch, from 1."""
    step: int | None = None
    """Steps finished so far, counted across all epochs."""
    steps_since_restart: int | None = None
    """Steps finished since the last restart, for a program that reports no step numbers, so that the step at which it
    resumed is unknown."""
    total_steps: int | None = None
    """How many steps there will be in total."""
    percent: float | None = None
    """Percentage of totalSteps that is finished."""
    eta_seconds: int | None = None
    """Seconds until training is finished, at the current speed."""
    loss: float | None = None
    """The last loss that was reported, if it is a finite number."""
    loss_not_finite: Annotated[str, Field(pattern="^(NaN|-?Infinity)$", max_length=9)] | None = None
    """The last loss that was reported, if it is not finite: NaN, Infinity or -Infinity."""
    loss_not_finite_since_step: int | None = None
    """The step at which a loss that is not finite was first seen."""
    samples_per_second: float | None = None
    """Samples per second, summed over all ranks."""
    step_seconds: float | None = None
    """Seconds that a step takes: the median of the recent steps."""
    stall_limit_seconds: float | None = None
    """How long the program may go without finishing a step in its present activity, such as training or saving,
    before the gang counts as stalled."""
    last_step_time: Time | None = None
    """When the last step finished."""
    slowest_node: int | None = None
    """Number of the node whose own part of a step takes longest."""


class CheckpointSeen(_Said):
    """The last checkpoint that is complete."""

    KEY = "step"

    step: int
    """The step after which the checkpoint was saved."""
    time: Time | None = None
    """When the checkpoint was saved."""


class RequestState(StrEnum):
    """What has come of a request for a checkpoint."""

    REQUESTED = "Requested"
    """The program has been asked to save, or will be."""
    SAVED = "Saved"
    """A checkpoint of the state at the request, or of a later state, is complete."""
    NOT_SAVED = "NotSaved"
    """The program did not save. The request is not repeated."""


class RequestedCheckpoint(_Said):
    """A request for a checkpoint, and its outcome."""

    KEY = "request"

    request: Annotated[str, Field(max_length=LONGEST_REQUEST)]
    """The value of the annotation `ddpjob.dev/checkpoint-request`."""
    state: Annotated[RequestState | str, _Open(RequestState)]
    """What has come of the request."""
    time: Time
    """When the operator noticed the request."""
    attempt: int
    """The attempt that was to save."""
    step: int | None = None
    """The step after which the checkpoint was saved."""
    message: Annotated[str, Field(max_length=512)] = ""
    """Why nothing was saved, in a sentence."""


class Straggler(_Said):
    """A node with a process that is slower than the others."""

    KEY = "node"

    node: int
    """The node's number."""
    node_name: str | None = None
    """The Kubernetes node on which its pod runs."""
    slowdown: float
    """The time that the node's own part of a step takes, as a multiple of the usual time."""


class FailedCode(_Said):
    """New code that failed before its first step, so that the former code runs again."""

    revision: int = 0
    """`spec.code.revision`, which may still name this code."""
    digest: Annotated[str, Field(max_length=64)] = ""
    """SHA-256 of the archive with the code, in hexadecimal. The same code is not tried again."""
    by: Annotated[str, Field(max_length=256)] | None = None
    """Who sent it, according to the command that did it."""
    time: Time | None = None
    """When it failed."""
    attempt: int | None = None
    """The attempt in which it failed."""
    rank: int | None = None
    """The rank that failed first; not set if no rank stands out."""
    message: Annotated[str, Field(max_length=1024)] = ""
    """Which rank failed first, and why, in a clause."""


class RunningCode(_Said):
    """The code that the ranks run, as their supervisors report it."""

    revision: int = 0
    """`spec.code.revision`; 0 for the code of the template."""
    digest: Annotated[str, Field(max_length=64)] = ""
    """SHA-256 of the archive with the code, in hexadecimal."""
    by: Annotated[str, Field(max_length=256)] | None = None
    """Who replaced the code in place last, according to the command that did it; not set if nobody has."""
    time: Time | None = None
    """When it was replaced in place."""
    attempt: int | None = None
    """The first attempt after that."""
    untried: bool = False
    """Whether it has taken the place of other code, and has not finished a step yet. If it fails before that, the
    former code runs again."""
    failed: FailedCode | None = None
    """The last code that failed before its first step. If `spec.code` still names it, the former code runs."""

    @property
    def replaced(self) -> str:
        """How the code was replaced in place, in a clause; empty if it was not."""
        if self.attempt is None:
            return ""
        return (
            f"revision {self.revision} ({self.digest[:12]}), sent by {self.by}; in place since attempt {self.attempt}"
        )


class NetworkStatus(_Said):
    """The network settings of the present pods."""

    master_port: int | None = None
    """Port on which rank 0 waits for the other ranks."""
    status_port: int | None = None
    """Port of the supervisors' status pages."""
    control_port: int | None = None
    """Port on which supervisors communicate with each other."""
    policy: Annotated[NetworkPolicy | str, _Open(NetworkPolicy)] | None = None
    """`spec.network.policy` or, if it is not set, the operator's setting when the job first started."""
    service: Annotated[str, Field(max_length=63)] | None = None
    """Name of the Service by which the pods find rank 0."""


class InheritedMetadata(_Said):
    """Metadata that all objects of the job get in addition to the labels of its template."""

    labels: Marks = Field(default_factory=dict, max_length=3 * MOST_INHERITED)
    """The labels from the operator's settings and from `defaults`, and those of the job's labels that the settings
    name by key."""
    annotations: Marks = Field(default_factory=dict, max_length=3 * MOST_INHERITED)
    """The annotations from `defaults`, and those of the job and of its template that the settings name by key."""


class Defaults(DefaultSettings, _Said):
    """Settings of the organisation for a job, from all entries that apply to the job's namespace.

    Example:
        >>> Defaults(image="registry.example.com/trainer:1", sources={"image": "all-teams"}).image
        'registry.example.com/trainer:1'
    """

    model_config = ConfigDict(extra="allow")

    network_policy: Annotated[NetworkPolicy | str, _Open(NetworkPolicy)] | None = None
    """`spec.network.policy`."""
    pod_security: Annotated[PodSecurity | str, _Open(PodSecurity)] | None = None
    """The security context of pods whose template sets none."""
    sources: dict[str, Annotated[str, Field(max_length=63)]] = Field(default_factory=dict)
    """The name of the entry that each setting comes from, such as `env[HTTPS_PROXY]: proxies`."""


NO_DEFAULTS = Defaults()
"""The defaults of an organisation that has none."""


class DisplayStatus(_Said):
    """Text for the columns of `kubectl get ddp`."""

    ready: Annotated[str, Field(max_length=16)] = ""
    """`readyNodes` out of all nodes: `2/2`."""
    progress: Annotated[str, Field(max_length=32)] = ""
    """How far training has come: `30%`; `step 120` if the total is unknown; or `12 steps since restart`."""
    eta: Annotated[str, Field(max_length=16)] = ""
    """`progress.etaSeconds`, while the job runs: `56s`, `1h5m`, `3d4h`."""


class Steps(_Said):
    """Step numbers from all attempts."""

    earliest: int | None = None
    """The smallest `progress.firstStep`."""
    furthest: int | None = None
    """The largest `progress.step`."""
    saved: int | None = None
    """The step of the last checkpoint that was reported, even if it has been lost since."""
    time: Time | None = None
    """When the operator heard of the last change of `progress`."""


class Bookkeeping(_Said):
    """What the operator has to remember between two decisions.

    Its fields may change in any release; programs should not rely on them.
    """

    version: Annotated[str, Field(max_length=16)] = VERSION
    """The version of the type in which the job was started. The operator leaves unfinished jobs alone that were
    started in a former version."""
    incarnations: Incarnations = Incarnations()
    """Distinguishes the present pods from previous ones."""
    budget: Budget = Budget()
    """How much of the restart budget has been used."""
    supervised: bool = False
    """Whether a supervisor in rank 0's pod has answered since the gang last started as a whole."""
    suspend_time: Time | None = None
    """When the job's pods were told to save and stop, or its start was postponed. Cleared when it starts again."""
    last_completed_time: Time | None = None
    """When the last of the nodes in `completedIndexes` finished."""
    steps: Steps = Steps()
    """Step numbers that show whether an attempt has started over."""
    contender: Annotated[str, Field(max_length=MAX_OPERATOR)] | None = None
    """Another operator, which would run the job if the one in `status.operator` is gone. A running operator removes
    the name at once."""


class DDPJobStatus(_Said):
    """The job as last seen, and everything that later decisions must know about the past."""

    observed_generation: int = 0
    """The `metadata.generation` of the spec that this status refers to."""
    state: Annotated[State | str, _Open(State)] = State.PENDING
    """What the job is doing, in one word."""
    reason: Annotated[str, Field(max_length=128, pattern=REASON)] = ""
    """Why, in one word: the reason of the most important condition."""
    message: Annotated[str, Field(max_length=1024)] = ""
    """What the job is doing or waiting for, in one sentence."""
    display: DisplayStatus = DisplayStatus()
    """Text for the columns of `kubectl get ddp`. Its form may change in any release."""
    ready_nodes: int = 0
    """Number of pods whose trainer is running or has succeeded, except those whose supervisor no longer answers. In a
    finished job, the number at its end."""
    completed_indexes: Annotated[
        str, Field(max_length=MAX_INDEXES, pattern=r"^([0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*)?$")
    ] = ""
    """The nodes that have finished since the gang last started as a whole, by number, in the format of an Indexed
    Job: `0,3-5`. They remain finished when their pods are removed."""
    attempt: int = 0
    """How often the gang has been started."""
    operator: Annotated[str, Field(max_length=MAX_OPERATOR)] | None = None
    """The operator that runs the job: namespace and name of its Lease. Not set if an operator of a release without
    classes wrote this status."""
    class_name: Annotated[str, Field(max_length=63, pattern=CLASS)] | None = None
    """The job's class, by the label `ddpjob.dev/class`, when this operator took it; not set for the default class.
    While the job runs, a change of the label has no effect."""
    selector: str = ""
    """Label selector of the job's pods, for autoscalers."""
    nodes: int | None = None
    """Current number of nodes. This, the next two fields and `network` are fixed when the gang starts."""
    procs_per_node: int | None = None
    """Processes on each node: `spec.procsPerNode` or, if it is not set, the number derived from the GPUs."""
    backend: Annotated[Backend | str, _Open(Backend)] | None = None
    """The backend in use: `spec.backend`, with Auto resolved."""
    network: NetworkStatus = NetworkStatus()
    """The network settings of the present pods: `spec.network`, with the defaults that it leaves out."""
    pod_security: Annotated[PodSecurity | str, _Open(PodSecurity)] | None = None
    """The operator's setting of pod security when the job started or was last resumed."""
    inherited: InheritedMetadata | None = None
    """Labels and annotations that all objects of the job have in addition to the labels of its template. They come
    from the operator's settings and the job's metadata at its start or last resumption. Not set if there are none."""
    trainer_image: str | None = None
    """The image for containers whose template names none: the operator's setting when the job first started."""
    defaults: Defaults | None = None
    """What the organisation's administrator had set for jobs such as this one when it first started, and from which
    entry each setting comes. Fixed for the job's life. What the job sets itself wins. Not set if there was none."""
    history_path: Annotated[str, Field(max_length=MAX_PLACE + len(f"/{HISTORY_FOLDER}"))] | None = None
    """Where the supervisors of this job keep its history, as a directory or a URL; not set if they keep none. Fixed
    when the job starts or is resumed."""
    pod_group: Annotated[str, Field(max_length=63)] | None = None
    """Name of the PodGroup by which the cluster's scheduler places the present pods, and of its Workload; not set if
    the operator could make none when the gang last started as a whole."""
    progress: Progress | None = None
    """How far training has come; updated every ten seconds at most."""
    checkpoint: CheckpointSeen | None = None
    """The last checkpoint that is complete."""
    code: RunningCode | None = None
    """The code that the ranks run, if `ddpjob submit` has sent it and a supervisor starts the ranks."""
    requested_checkpoint: RequestedCheckpoint | None = None
    """The last request for a checkpoint, by `ddpjob checkpoint` or by the annotation that it sets."""
    result: Annotated[str, Field(max_length=MAX_RESULT)] | None = None
    """The result that rank 0 returned or set, as JSON, if it is not larger than 2 KiB. Set when rank
    0's pod has ended; removed if the job fails nevertheless."""
    result_place: Annotated[str, Field(max_length=MAX_RESULT_PLACE, pattern=PLACE)] | None = None
    """Where a larger result is: a file below `status.historyPath`."""
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
    """Kubernetes nodes that were lost lately, or are broken: pods are placed elsewhere if possible."""
    conditions: Annotated[tuple[Condition, ...], Field(max_length=24, json_schema_extra=_by("type"))] = ()
    """What is true of the job, and since when."""
    bookkeeping: Bookkeeping = Bookkeeping()
    """What the operator has to remember between two decisions. Its fields may change in any release; programs should
    not rely on them."""

    def to_dict(self) -> dict[str, object]:
        """Returns the status as it is written, without empty fields, like the statuses of Kubernetes' own objects."""
        written = super().to_dict()
        defaults = written.pop("defaults", None)
        lean: dict[str, object] = _lean(written)
        if isinstance(defaults, dict):  # Further inside, an empty field has a meaning, such as `emptyDir: {}`.
            lean["defaults"] = {name: value for name, value in defaults.items() if not is_empty(value)}
        return lean

    def condition(self, kind: str) -> Condition | None:
        """Returns the condition of this type, if it was ever set."""
        # Each decision calls this dozens of times, and a generator would take twice as long.
        for condition in self.conditions:
            if condition.type == kind:
                return condition
        return None

    def is_true(self, kind: ConditionType) -> bool:
        """Whether the condition of this type is set and true."""
        for condition in self.conditions:  # `condition()` would take twice as long, for fifty calls per decision.
            if condition.type == kind:
                return condition.status == "True"
        return False

    @property
    def resumed(self) -> bool:
        """Whether the job has started again after a suspension. Then `start_time` is when it last did so."""
        suspended = self.condition(ConditionType.SUSPENDED)
        # A job that is cancelled while it is suspended is not suspended any more either, but has no startTime.
        return suspended is not None and suspended.status == "False" and self.start_time is not None

    def message_while_true(self, kind: ConditionType) -> str:
        """Returns the message of the condition of this type if it is true; otherwise empty."""
        condition = self.condition(kind)
        return condition.message if condition is not None and condition.status == "True" else ""

    def completed(self) -> frozenset[int]:
        """Returns the nodes in `completedIndexes`, without those that the job no longer has."""
        ends = (run.partition("-") for run in self.completed_indexes.split(",") if run)
        runs = (range(int(first), min(int(last or first) + 1, self.nodes or 0)) for first, _, last in ends)
        return frozenset(node for run in runs for node in run)

    @property
    def last_incident(self) -> Incident | None:
        """The newest incident, if there was any."""
        return self.incidents[0] if self.incidents else None

    @property
    def begun(self) -> bool:
        """Whether the job has been started, or its end decided before its start. Its defaults are then fixed."""
        return self.attempt > 0 or self.ending or self.finished

    @property
    def former(self) -> bool:
        """Whether a release with a former version of the type started the job."""
        return self.bookkeeping.version in {FORMER_VERSION, ""}

    @property
    def ending(self) -> bool:
        """Whether the job's end has been decided. Until the job has finished, its pods are being stopped."""
        return self.is_true(ConditionType.SUCCESS_CRITERIA_MET) or self.is_true(ConditionType.FAILURE_TARGET)

    @property
    def succeeded(self) -> bool:
        """Whether the job has succeeded."""
        return self.is_true(ConditionType.COMPLETE)

    @property
    def finished(self) -> bool:
        """Whether the job has succeeded or failed."""
        return self.succeeded or self.is_true(ConditionType.FAILED)

    def kept_in(self, after: "DDPJobStatus") -> "DDPJobStatus":
        """Adds to the next status, `after`, the fields of this status that only a newer version knows."""
        kept: DDPJobStatus = _kept(self, after)
        return kept


def _lean(written: Any) -> Any:
    """Removes empty fields at all depths, even inside fields that only a newer version knows."""
    # A status has about a hundred values, most of them plain, and a call for each would be slow.
    if isinstance(written, dict):
        return {
            name: _lean(value) if isinstance(value, (dict, list)) else value
            for name, value in written.items()
            if not is_empty(value)
        }
    return [_lean(item) if isinstance(item, (dict, list)) else item for item in written]


def _kept(before: Any, after: Any) -> Any:
    """Adds to the new value, at all depths, the fields of the old value that only a newer version knows."""
    if before is after:
        return after
    if isinstance(after, _Said) and isinstance(before, _Said):
        if after.KEY and getattr(before, after.KEY) != getattr(after, after.KEY):
            return after  # `after` is another item, such as the next incident.
        old = vars(before)
        # Most fields still have the same object as their value. They are skipped, because this runs for each new
        # status.
        fields = ((name, old[name], now) for name, now in vars(after).items() if old[name] is not now)
        changes = {name: kept for name, was, now in fields if (kept := _kept(was, now)) is not now}
        unknown, newer = before.model_extra or {}, after.model_extra or {}
        changes |= {name: value for name, value in unknown.items() if name not in newer}
        return after.model_copy(update=changes) if changes else after
    if isinstance(after, tuple) and isinstance(before, tuple):
        known = {getattr(item, item.KEY): item for item in before if isinstance(item, _Said)}
        items = tuple(_kept(known.get(getattr(item, item.KEY)), item) if known else item for item in after)
        return after if all(kept is item for kept, item in zip(items, after, strict=True)) else items
    return after
