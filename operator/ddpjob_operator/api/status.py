"""What the operator says: `status`. All that the engine must remember between two looks stands here."""

from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any

from pydantic import ConfigDict, Field, PlainSerializer

from .causes import Cause
from .model import Model
from .restart import RestartAction
from .spec import Backend

Time = Annotated[
    datetime,
    PlainSerializer(lambda time: time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"), when_used="json"),
]
"""A moment as Kubernetes' MicroTime: seconds alone would swallow a backoff of one second."""


HISTORY = 10
MAX_AVOIDED = 8


def _by(key: str) -> dict[str, Any]:
    """A list whose items are told apart by a key."""
    return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [key]}


class _Said(Model):
    """What an operator wrote; one of an older version reads it without what it does not know."""

    model_config = ConfigDict(extra="ignore")


class ConditionType(StrEnum):
    """Conditions of a job. Several can be true at once; `State` is the one word for all of them."""

    BLOCKED = "Blocked"
    """Something outside of the job keeps its pods from being made: a quota, a policy, a name that is taken."""
    CREATED = "Created"
    """The Service and all pods of this attempt exist."""
    RUNNING = "Running"
    """The trainer runs in every pod."""
    RESTARTING = "Restarting"
    """An incident ended the last attempt and the next one does not run yet."""
    SUSPENDED = "Suspended"
    """The spec asks for suspension and nothing runs."""
    SUCCESS_CRITERIA_MET = "SuccessCriteriaMet"
    """Every rank has exited with 0; the job is being brought to its end."""
    FAILURE_TARGET = "FailureTarget"
    """The job will fail; it is being brought to its end."""
    SUCCEEDED = "Succeeded"
    """Done, and nothing of it runs any more. Final."""
    FAILED = "Failed"
    """Given up, and nothing of it runs any more. Final."""


class State(StrEnum):
    """What a job is doing, in one word."""

    PENDING = "Pending"
    """Nothing runs yet: the pods are still to be made."""
    STARTING = "Starting"
    """All pods exist, and not all run yet."""
    RUNNING = "Running"
    """The trainer runs in every pod, or has already ended well there."""
    RESTARTING = "Restarting"
    """The last attempt has ended early; the next one does not run yet."""
    SUSPENDING = "Suspending"
    """Suspension was asked for; pods save and stop."""
    SUSPENDED = "Suspended"
    """Nothing runs until suspension is lifted."""
    SUCCEEDED = "Succeeded"
    """Every rank has exited with 0. Final."""
    FAILED = "Failed"
    """Given up. Final."""


class PodSecurity(StrEnum):
    """What pods are given where their template says nothing: a setting of the operator."""

    RESTRICTED = "Restricted"
    """All that Kubernetes' restricted Pod Security Standard asks for, and a home that its user can write to."""
    NONE = "None"
    """Nothing: user, rights and home are what the image and the cluster make of them."""


class Condition(_Said):
    """One condition, as the Kubernetes API conventions have it."""

    type: ConditionType
    """Its name."""
    status: Annotated[str, Field(pattern="^(True|False|Unknown)$")]
    """Whether it holds."""
    reason: Annotated[str, Field(max_length=128)]
    """Why, in one CamelCase word for programs."""
    message: Annotated[str, Field(max_length=1024)]
    """Why, in a sentence for people."""
    last_transition_time: Time
    """When `status` last changed."""
    observed_generation: int
    """The `metadata.generation` of the spec that it speaks of."""


class Incarnations(_Said):
    """Which pod of each rank is the present one."""

    default: int = 0
    """Number of pods that every rank has had. A pod with a smaller number is a previous one."""


class Budget(_Said):
    """What is used of the restart budget since the job was last healthy for windowSeconds."""

    used: int = 0
    """Restarts that count against maxRestarts."""
    disruptions: int = 0
    """Restarts that count against maxDisruptions."""
    streak: int = 0
    """Incidents of any kind; the exponent of the backoff."""


class Failure(_Said):
    """An incident: the rank that failed first, why, and what followed from it."""

    time: Time
    """When the rank's process ended; without that, when it was noticed."""
    attempt: int
    """The attempt that it ended."""
    rank: int
    """The node's rank that failed first."""
    pod: str
    """That rank's pod."""
    node: str | None = None
    """The machine that it ran on, where that is known."""
    cause: Cause
    """Why."""
    exit_code: int | None = None
    """How the process ended: its own code, or 128+n for signal n."""
    signal: int | None = None
    """The signal that ended it."""
    message: Annotated[str, Field(max_length=512)] = ""
    """The program's last words: as a rule the last line of its exception."""
    step: int | None = None
    """The last step that the rank had finished or, where it does not say so, the last that any other says."""
    tied: bool = False
    """Another rank failed in the same way at the same moment; which came first is unknown."""
    action: RestartAction = RestartAction.RESTART
    """What was decided about it."""
    rule: Annotated[str, Field(max_length=64)] = ""
    """What decided: a rule, as in `spec.restart.rules[0]`, or `default`."""
    consequences: int = 0
    """Ranks that failed with it."""
    consequence_ranks: Annotated[
        tuple[int, ...], Field(max_length=8, json_schema_extra={"x-kubernetes-list-type": "atomic"})
    ] = ()
    """The first eight of them."""


class AvoidedNode(_Said):
    """A machine that pods are kept away from."""

    node: Annotated[str, Field(max_length=253)]
    """Its name."""
    until: Time
    """When it is forgotten."""


class DDPJobStatus(_Said):
    """The job as last seen, and all that the next look must know about the past."""

    observed_generation: int = 0
    """The `metadata.generation` of the spec that this status speaks of."""
    state: State = State.PENDING
    """What the job is doing, in one word."""
    message: Annotated[str, Field(max_length=1024)] = ""
    """What the job is doing or waiting for, in one sentence."""
    ready: str = ""
    """Pods whose trainer runs, of all: `2/2`."""
    attempt: int = 0
    """Starts of the gang."""
    incarnations: Incarnations = Incarnations()
    """Tells the present pods from previous ones."""
    selector: str = ""
    """Selects the job's pods, for autoscalers."""
    nodes: int | None = None
    """Present number of nodes. This and the next three are fixed when an attempt starts."""
    procs_per_node: int | None = None
    """Processes on each node: the number that `spec.procsPerNode` stands for."""
    backend: Backend | None = None
    """The backend that `spec.backend` stands for."""
    master_port: int | None = None
    """Port of the master."""
    pod_security: PodSecurity | None = None
    """What the operator's setting was when the job started or was last resumed."""
    restarts: int = 0
    """Restarts that counted against the budget, in the job's whole life."""
    disruptions: int = 0
    """Restarts that were nobody's fault and did not count."""
    budget: Budget = Budget()
    """What is used of the restart budget."""
    start_time: Time | None = None
    """When the job became active; cleared by suspension."""
    backoff_until: Time | None = None
    """The next attempt starts no earlier."""
    completion_time: Time | None = None
    """When the job succeeded or failed."""
    first_run_time: Time | None = None
    """When all ranks ran for the first time since startTime."""
    last_failure: Failure | None = None
    """The last incident: who failed first, and why."""
    history: Annotated[
        tuple[Failure, ...], Field(max_length=HISTORY, json_schema_extra={"x-kubernetes-list-type": "atomic"})
    ] = ()
    """The last ten incidents, the newest first."""
    avoided_nodes: Annotated[
        tuple[AvoidedNode, ...], Field(max_length=MAX_AVOIDED, json_schema_extra=_by("node"))
    ] = ()
    """Machines that were lost lately: pods are put elsewhere where that is possible."""
    conditions: Annotated[tuple[Condition, ...], Field(max_length=16, json_schema_extra=_by("type"))] = ()
    """What is true of the job, and since when."""

    def condition(self, kind: ConditionType) -> Condition | None:
        """The condition of that type, if it was ever set."""
        return next((condition for condition in self.conditions if condition.type == kind), None)

    def is_true(self, kind: ConditionType) -> bool:
        """Whether the condition of that type is set and true."""
        condition = self.condition(kind)
        return condition is not None and condition.status == "True"

    @property
    def succeeded(self) -> bool:
        """Whether the job has succeeded."""
        return self.is_true(ConditionType.SUCCEEDED)

    @property
    def finished(self) -> bool:
        """Whether the job has reached one of its two ends."""
        return self.succeeded or self.is_true(ConditionType.FAILED)
