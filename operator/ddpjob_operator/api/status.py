"""What the operator says: `status`. All that the engine must remember between two looks stands here."""

from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated

from pydantic import Field, PlainSerializer

from .model import Model
from .spec import Backend

Time = Annotated[
    datetime,
    PlainSerializer(lambda time: time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"), when_used="json"),
]
"""A moment as Kubernetes' MicroTime: seconds alone would swallow a backoff of one second."""


class ConditionType(StrEnum):
    """Conditions of a job. Several can be true at once; `State` is the one word for all of them."""

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
    STARTING = "Starting"
    RUNNING = "Running"
    RESTARTING = "Restarting"
    SUSPENDING = "Suspending"
    SUSPENDED = "Suspended"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


class Cause(StrEnum):
    """Why a rank failed."""

    APPLICATION = "Application"
    """The training program ended with an error or by a signal."""
    OUT_OF_MEMORY = "OutOfMemory"
    """The kernel ended it because its memory limit was reached."""
    CONFIG_ERROR = "ConfigError"
    """The program says that its arguments, data or environment are wrong. Trying again cannot help."""
    STORAGE_FULL = "StorageFull"
    """A checkpoint could not be written for want of space. Trying again cannot help."""
    START_ERROR = "StartError"
    """The trainer container could not be started at all. Trying again cannot help."""
    PEER_LOST = "PeerLost"
    """A collective failed because another rank went away: a consequence, unless nothing else is known."""
    STOPPED = "Stopped"
    """It saved and stopped because it was asked to, but not by this job's operator. A disruption."""
    POD_DELETED = "PodDeleted"
    """The pod was deleted, or vanished, without this job's operator. A disruption."""


class Condition(Model):
    """One condition, as the Kubernetes API conventions have it."""

    type: ConditionType
    status: Annotated[str, Field(pattern="^(True|False|Unknown)$")]
    reason: Annotated[str, Field(max_length=128)]
    message: Annotated[str, Field(max_length=1024)]
    last_transition_time: Time
    observed_generation: int


class Incarnations(Model):
    """Which pod of each rank is the present one."""

    default: int = 0
    """Number of pods that every rank has had. A pod with a smaller number is a previous one."""


class Budget(Model):
    """What is used of the restart budget since the job was last healthy for windowSeconds."""

    used: int = 0
    """Restarts that count against maxRestarts."""
    streak: int = 0
    """Incidents of any kind; the exponent of the backoff."""


class Failure(Model):
    """An incident: the rank that failed first, why, and what followed from it."""

    time: Time
    attempt: int
    rank: int
    pod: str
    node: str | None = None
    cause: Cause
    exit_code: int | None = None
    signal: int | None = None
    message: Annotated[str, Field(max_length=512)] = ""
    """The program's last words: as a rule the last line of its exception."""
    step: int | None = None
    tied: bool = False
    """Another rank failed in the same way at the same moment; which came first is unknown."""
    consequences: int = 0
    """Ranks that failed with it."""
    consequence_ranks: Annotated[tuple[int, ...], Field(max_length=8)] = ()
    """The first eight of them."""


class DDPJobStatus(Model):
    """The job as last seen, and all that the next look must know about the past."""

    observed_generation: int = 0
    state: State = State.PENDING
    message: Annotated[str, Field(max_length=1024)] = ""
    """What the job is doing or waiting for, in one sentence."""
    ready: str = ""
    """Pods whose trainer runs, of all: `2/2`."""
    attempt: int = 0
    """Starts of the gang."""
    incarnations: Incarnations = Incarnations()
    nodes: int | None = None
    """Present number of nodes. This and the next three are fixed when an attempt starts."""
    procs_per_node: int | None = None
    backend: Backend | None = None
    master_port: int | None = None
    restarts: int = 0
    """Restarts that counted against the budget, in the job's whole life."""
    disruptions: int = 0
    """Restarts that were nobody's fault and did not count."""
    budget: Budget = Budget()
    start_time: Time | None = None
    """When the job became active; cleared by suspension."""
    backoff_until: Time | None = None
    """The next attempt starts no earlier."""
    completion_time: Time | None = None
    last_failure: Failure | None = None
    conditions: Annotated[tuple[Condition, ...], Field(max_length=16)] = ()

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
