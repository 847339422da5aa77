"""What a rank tells of itself, as supervisors pass it on."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """One that is complete."""

    step: int
    time: str
    """RFC 3339, UTC, with milliseconds."""


@dataclass(frozen=True, slots=True)
class Beat:
    """What a rank tells. What it has not told, or what is not known yet, is None."""

    process: int
    """The global rank."""
    attempt: int
    activity: str
    """`starting` until the first step is finished; then `training`, `saving`, `evaluation`, or the program's word."""
    step: int | None = None
    """The last that was finished in this attempt."""
    step_age: float | None = None
    """Seconds since then."""
    counted: bool = False
    """Whether steps are counted for a program that does not tell them: from 1 in each attempt."""
    epoch: int | None = None
    total_steps: int | None = None
    loss: float | None = None
    samples: int | None = None
    """Of a step, of all processes together."""
    step_seconds: float | None = None
    """Recent mean, without what is no training."""
    seconds: Mapping[str, float] = field(default_factory=dict)
    """What it consists of: those of heartbeat.PARTS that are known. Backward contains communication."""
    memory_bytes: int | None = None
    checkpoint: Checkpoint | None = None
    """The newest."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """The program's own numbers."""

    def to_dict(self) -> dict[str, Any]:
        """As it is sent: without what is None or empty."""
        checkpoint = self.checkpoint
        told = {
            "process": self.process,
            "attempt": self.attempt,
            "activity": self.activity,
            "step": self.step,
            "stepAge": self.step_age,
            "counted": self.counted or None,
            "epoch": self.epoch,
            "totalSteps": self.total_steps,
            "loss": self.loss,
            "samples": self.samples,
            "stepSeconds": self.step_seconds,
            "seconds": dict(self.seconds) or None,
            "memoryBytes": self.memory_bytes,
            "checkpoint": {"step": checkpoint.step, "time": checkpoint.time} if checkpoint else None,
            "metrics": dict(self.metrics) or None,
        }
        return {name: value for name, value in told.items() if value is not None}

    @classmethod
    def from_dict(cls, told: Mapping[str, Any]) -> Self:
        """As it was sent; names that are not known are left out.

        Raises:
            ValueError: It is no beat.
        """
        try:
            checkpoint = told.get("checkpoint")
            return cls(
                process=int(told["process"]),
                attempt=int(told["attempt"]),
                activity=str(told["activity"]),
                step=told.get("step"),
                step_age=told.get("stepAge"),
                counted=bool(told.get("counted")),
                epoch=told.get("epoch"),
                total_steps=told.get("totalSteps"),
                loss=told.get("loss"),
                samples=told.get("samples"),
                step_seconds=told.get("stepSeconds"),
                seconds=dict(told.get("seconds", {})),
                memory_bytes=told.get("memoryBytes"),
                checkpoint=Checkpoint(checkpoint["step"], checkpoint["time"]) if checkpoint else None,
                metrics=dict(told.get("metrics", {})),
            )
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ValueError(f"no beat of a rank: {error!r} in {str(told)[:200]}") from error
