"""A beat: the report of a rank, as supervisors pass it on."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Required, TypedDict, cast

import msgspec
from ddpjob_rank.recording.json_lines import in_json
from msgspec.structs import replace


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A complete checkpoint."""

    step: int
    time: str
    """In the form of RFC 3339, in UTC, with milliseconds."""


class Beat(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """The report of a rank. A field is None if it is not reported, or not known yet."""

    rank: int
    attempt: int
    activity: str
    """`starting` until the first step has finished; then `training`, `saving`, `evaluation` or the program's word."""
    activity_age: float | None = None
    """Seconds since the program last reported an activity other than training; None: it trains, or starts or ends."""
    step: int | None = None
    """The last step that the rank finished in this attempt."""
    step_age: float | None = None
    """How many seconds ago that step finished."""
    counted: bool = False
    """Whether steps are counted because the program does not report them."""
    anew: bool = False
    """Whether counting began again after a restart, because it is unknown at which step the program continued."""
    reports: bool = False
    """Whether the program reports its steps. ddpjob-train declares this before its first step."""
    announces: bool = False
    """Whether the program has announced, at least once, an activity that takes long between two steps."""
    epoch: int | None = None
    total_steps: int | None = None
    loss: float | None = None
    samples: int | None = None
    """The number of samples per step, across all processes."""
    step_seconds: float | None = None
    """The recent mean time of a step, without pauses such as evaluations."""
    seconds: Mapping[str, float] = {}
    """The mean times of those parts of a step that are known. The keys are names from heartbeat.PARTS. `backward`
    includes `communication`."""
    memory_bytes: int | None = None
    checkpoint: Checkpoint | None = None
    """The newest checkpoint."""
    metrics: Mapping[str, float] = {}
    """Other numbers that the program reports."""
    transport: str | None = None
    """How NCCL transfers data, such as `P2P, NET/IB`. The supervisor reads this from NCCL's log."""
    slowed: str | None = None
    """Why the driver keeps the clocks of the rank's GPU low. The supervisor asks the driver."""
    first_step: int | None = None
    """The first step that the rank finished in this attempt; None if unknown."""
    begins: str | None = None
    """Where the program began: `FromCheckpoint`, or at the first step because of a request (`AsAsked`) or because no
    checkpoint exists (`NothingSaved`)."""
    stopped: str | None = None
    """The state of the process, as in proc(5), if a signal or a debugger has stopped it. The supervisor reads it."""

    def to_dict(self) -> "BeatFields":
        """The report in the form in which it is sent: without None and without empty values."""
        sent = replace(
            self,
            activity_age=finite(self.activity_age),
            step_age=finite(self.step_age),
            step_seconds=finite(self.step_seconds),
            seconds={part: number for part, number in self.seconds.items() if math.isfinite(number)},
            loss=in_json(self.loss),
            metrics=in_json(self.metrics),
        )
        return cast("BeatFields", msgspec.to_builtins(sent))


Number = float | Literal["NaN", "Infinity", "-Infinity"]
"""A number that is shown even if it is not finite. `in_json` writes it, and `float` reads it."""


class CheckpointFields(TypedDict):
    """A Checkpoint in the form in which it is sent."""

    step: int
    time: str


BeatDocument = Mapping[str, Any]
"""A beat as it was received. Supervisors of other versions may send other fields."""


class BeatFields(TypedDict, total=False):
    """A Beat in the form in which it is sent. A newer version may send other fields, which are ignored."""

    rank: Required[int]
    attempt: Required[int]
    activity: Required[str]
    activityAge: float
    step: int
    firstStep: int
    begins: str
    stepAge: float
    counted: bool
    anew: bool
    reports: bool
    announces: bool
    epoch: int
    totalSteps: int
    loss: Number
    samples: int
    stepSeconds: float
    seconds: dict[str, float]
    memoryBytes: int
    checkpoint: CheckpointFields
    metrics: dict[str, Number]
    transport: str
    slowed: str
    stopped: str


def finite(number: float | None) -> float | None:
    """The number, or None if it is not finite."""
    return number if number is not None and math.isfinite(number) else None
