"""What a rank reports, as supervisors pass it on."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Required, TypedDict, cast

import msgspec
from ddpjob_rank.recording.json_lines import in_json
from msgspec.structs import replace


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """One that is complete."""

    step: int
    time: str
    """RFC 3339, UTC, with milliseconds."""


class Beat(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """What a rank reports. What it has not reported, or is not known yet, is None."""

    rank: int
    attempt: int
    activity: str
    """`starting` until the first step is finished; then `training`, `saving`, `evaluation`, or the program's word."""
    step: int | None = None
    """The last step that it finished in this attempt."""
    step_age: float | None = None
    """Seconds since that step finished."""
    counted: bool = False
    """Whether steps are counted for a program that does not report them."""
    anew: bool = False
    """Whether counting started again after a restart, since it is unknown at which step the program went on."""
    reports: bool = False
    """Whether the program has promised to report its steps: like ddpjob-train, before it has any."""
    announces: bool = False
    """Whether the program announces what takes long between two steps: it has announced an evaluation, or says so."""
    epoch: int | None = None
    total_steps: int | None = None
    loss: float | None = None
    samples: int | None = None
    """Of a step, of all processes together."""
    step_seconds: float | None = None
    """Recent mean, of training alone."""
    seconds: Mapping[str, float] = {}
    """Its parts: those of heartbeat.PARTS that are known. Backward includes communication."""
    memory_bytes: int | None = None
    checkpoint: Checkpoint | None = None
    """The newest."""
    metrics: Mapping[str, float] = {}
    """The program's own numbers."""
    transport: str | None = None
    """How NCCL passes data, where it says so: `P2P, NET/IB`. Heard by its supervisor, not reported."""
    slowed: str | None = None
    """Why the clocks of its GPU are held down, as its supervisor was told by the driver."""
    first_step: int | None = None
    """The first one that it finished in this attempt; None: unknown."""
    begins: str | None = None
    """Where it begins, by its own account: `FromCheckpoint`, `AsAsked`, or `NothingSaved` and so at the beginning."""

    def to_dict(self) -> "BeatFields":
        """As it is sent: without None, and without what is empty."""
        sent = replace(
            self,
            step_age=finite(self.step_age),
            step_seconds=finite(self.step_seconds),
            seconds={part: number for part, number in self.seconds.items() if math.isfinite(number)},
            loss=in_json(self.loss),
            metrics=in_json(self.metrics),
        )
        return cast("BeatFields", msgspec.to_builtins(sent))


Number = float | Literal["NaN", "Infinity", "-Infinity"]
"""One that is worth showing even if it is not finite, as `in_json` writes it; `float` reads it."""


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


def finite(number: float | None) -> float | None:
    """A number, or None if it says nothing unless it is finite."""
    return number if number is not None and math.isfinite(number) else None
