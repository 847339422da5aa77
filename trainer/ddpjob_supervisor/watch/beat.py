"""The report of a rank, as supervisors pass it on."""

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
    """RFC 3339, UTC, with milliseconds."""


class Beat(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """The report of a rank. None: not reported, or not known yet."""

    rank: int
    attempt: int
    activity: str
    """`starting` until the first step has finished; then `training`, `saving`, `evaluation` or the program's word."""
    activity_age: float | None = None
    """Seconds since the program last reported an activity other than training; None: it trains, or starts or ends."""
    step: int | None = None
    """The last step that the rank finished in this attempt."""
    step_age: float | None = None
    """Seconds since that step finished."""
    counted: bool = False
    """Whether steps are counted for a program that does not report them."""
    anew: bool = False
    """Whether counting began again after a restart, because the step at which the program went on is unknown."""
    reports: bool = False
    """Whether the program reports its steps. ddpjob-train announces this before its first step."""
    announces: bool = False
    """Whether the program is known to announce activities that take long between two steps."""
    epoch: int | None = None
    total_steps: int | None = None
    loss: float | None = None
    samples: int | None = None
    """The number of samples per step, of all processes together."""
    step_seconds: float | None = None
    """The recent mean time of a step, without pauses such as evaluations."""
    seconds: Mapping[str, float] = {}
    """The mean times of the parts of a step that are known, by names from heartbeat.PARTS. Backward includes
    communication."""
    memory_bytes: int | None = None
    checkpoint: Checkpoint | None = None
    """The newest checkpoint."""
    metrics: Mapping[str, float] = {}
    """Other numbers that the program reports."""
    transport: str | None = None
    """How NCCL passes data, such as `P2P, NET/IB`. The supervisor reads this from NCCL's log."""
    slowed: str | None = None
    """Why the driver keeps the clocks of the rank's GPU low. The supervisor asks the driver."""
    stopped: str | None = None
    """The state of the process, as in proc(5), if a signal or a debugger has stopped it. The supervisor reads it."""
    first_step: int | None = None
    """The first step that the rank finished in this attempt; None: unknown."""
    begins: str | None = None
    """Where the program says that it begins: `FromCheckpoint`, or `AsAsked` or `NothingSaved` for the first step."""

    def to_dict(self) -> "BeatFields":
        """The report as it is sent: without None and without empty values."""
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
    """A Checkpoint as it is sent."""

    step: int
    time: str


BeatDocument = Mapping[str, Any]
"""A beat as it was received: another version may send other fields."""


class BeatFields(TypedDict, total=False):
    """A Beat as it is sent. A newer version may send other fields, which are ignored."""

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
