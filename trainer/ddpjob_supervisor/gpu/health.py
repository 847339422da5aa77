"""The state of this container's GPUs as the driver reports it, and the states in which training must not start."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU, as the driver describes it."""

    index: int
    """The driver's number of the GPU, in the order of the PCI bus."""
    uuid: str = ""
    pci: str = ""
    """The PCI address as in /sys, such as `0000:17:00.0`."""
    lost: str = ""
    """The driver's error if it cannot reach the GPU; otherwise empty."""
    uncorrected: int = 0
    """The number of ECC errors since the driver was loaded that could not be corrected."""
    worn_out: bool = False
    """Whether a broken row of memory could not be replaced because no spare rows are left."""
    to_reset: bool = False
    """Whether a broken row of memory will be replaced at the next reset."""
    slowed: tuple[str, ...] = ()
    """The reasons why the driver keeps the clocks low: heat, or the power supply."""


def problem_now(gpu: Gpu) -> str | None:
    """Why training must not start on the GPU, as a sentence; None if it may start."""
    if gpu.lost:
        return f"GPU {gpu.index} does not answer: {gpu.lost}"
    return f"GPU {gpu.index} has broken memory that can no longer be replaced" if gpu.worn_out else None


def warning_now(gpu: Gpu) -> str | None:
    """A problem that does not keep training from starting, as a sentence; None if there is none."""
    signs = [
        f"has had {gpu.uncorrected} ECC errors that could not be corrected" if gpu.uncorrected else "",
        "has broken memory that is replaced at its next reset" if gpu.to_reset else "",
        f"is slowed down: {', '.join(gpu.slowed)}" if gpu.slowed else "",
    ]
    problems = " and ".join(filter(None, signs))
    return f"GPU {gpu.index} {problems}: have the machine looked at" if problems else None
