"""The health of this container's GPUs: what the driver tells of them, and what of it keeps training from starting."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU, as the driver describes it."""

    index: int
    """Its number on the machine's bus."""
    uuid: str = ""
    pci: str = ""
    """As in /sys: `0000:17:00.0`."""
    lost: str = ""
    """Why the driver cannot reach it, in its words; empty: it can."""
    uncorrected: int = 0
    """ECC errors that could not be corrected, since the driver was loaded."""
    worn_out: bool = False
    """A broken row of its memory could not be replaced any more."""
    to_reset: bool = False
    """A broken row is replaced at the next reset."""
    slowed: tuple[str, ...] = ()
    """Why its clocks are held down: heat, or its power supply."""


def problem_now(gpu: Gpu) -> str | None:
    """Why no training should begin on it, in a sentence."""
    if gpu.lost:
        return f"GPU {gpu.index} does not answer: {gpu.lost}"
    return f"GPU {gpu.index} has broken memory that can no longer be replaced" if gpu.worn_out else None


def warning_now(gpu: Gpu) -> str | None:
    """What is not well with it, in a sentence, though training can begin."""
    signs = [
        f"has had {gpu.uncorrected} ECC errors that could not be corrected" if gpu.uncorrected else "",
        "has broken memory that is replaced at its next reset" if gpu.to_reset else "",
        f"is slowed down: {', '.join(gpu.slowed)}" if gpu.slowed else "",
    ]
    told = " and ".join(filter(None, signs))
    return f"GPU {gpu.index} {told}: have the machine looked at" if told else None
