"""What a rank reports, as supervisors pass it on."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """One that is complete."""

    step: int
    time: str
    """RFC 3339, UTC, with milliseconds."""


@dataclass(frozen=True, slots=True)
class Beat:
    """What a rank reports. What it has not reported, or is not known yet, is None."""

    process: int
    """The global rank."""
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
    seconds: Mapping[str, float] = field(default_factory=dict)
    """Its parts: those of heartbeat.PARTS that are known. Backward includes communication."""
    memory_bytes: int | None = None
    checkpoint: Checkpoint | None = None
    """The newest."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """The program's own numbers."""
    transport: str | None = None
    """How NCCL passes data, where it says so: `P2P, NET/IB`. Heard by its supervisor, not reported."""

    def to_dict(self) -> dict[str, Any]:
        """As it is sent: without None and empty values."""
        checkpoint = self.checkpoint
        told = {
            "process": self.process,
            "attempt": self.attempt,
            "activity": self.activity,
            "step": self.step,
            "stepAge": self.step_age,
            "counted": self.counted or None,
            "anew": self.anew or None,
            "reports": self.reports or None,
            "announces": self.announces or None,
            "epoch": self.epoch,
            "totalSteps": self.total_steps,
            "loss": self.loss,
            "samples": self.samples,
            "stepSeconds": self.step_seconds,
            "seconds": dict(self.seconds) or None,
            "memoryBytes": self.memory_bytes,
            "checkpoint": {"step": checkpoint.step, "time": checkpoint.time} if checkpoint else None,
            "metrics": dict(self.metrics) or None,
            "transport": self.transport,
        }
        return {name: value for name, value in told.items() if value is not None}


NUMBER = frozenset({int, float})
KINDS = {
    "process": frozenset({int}),
    "attempt": frozenset({int}),
    "activity": frozenset({str}),
    "step": frozenset({int}),
    "stepAge": NUMBER,
    "counted": frozenset({bool}),
    "anew": frozenset({bool}),
    "reports": frozenset({bool}),
    "announces": frozenset({bool}),
    "epoch": frozenset({int}),
    "totalSteps": frozenset({int}),
    "loss": NUMBER,
    "samples": frozenset({int}),
    "stepSeconds": NUMBER,
    "seconds": frozenset({dict}),
    "memoryBytes": frozenset({int}),
    "checkpoint": frozenset({dict}),
    "metrics": frozenset({dict}),
    "transport": frozenset({str}),
}
"""The types of each value, by its name. A newer version may send other values, which are ignored."""

ALWAYS = frozenset({"process", "attempt", "activity"})


def check(told: Mapping[str, Any]) -> None:
    """Checks whether what another supervisor sent is a beat. This is done thousands of times a second.

    Raises:
        ValueError: It is none.
    """
    wrong = [name for name, kinds in KINDS.items() if name in told and type(told[name]) not in kinds]
    wrong += ALWAYS - told.keys()
    if not wrong:
        for name in ("seconds", "metrics"):
            wrong += [part for part, number in told.get(name, {}).items() if type(number) not in NUMBER]
        checkpoint = told.get("checkpoint", {"step": 0, "time": ""})
        if type(checkpoint.get("step")) is not int or type(checkpoint.get("time")) is not str:
            wrong.append("checkpoint")
    if wrong:
        raise ValueError(f"no beat of a rank, since {', '.join(sorted(wrong))} cannot be so: {str(told)[:200]}")
