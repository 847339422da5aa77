"""The health of this container's GPUs: what the driver tells of them, and what of it ends training."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ddpjob_rank.machine.devices import VISIBLE

BROKEN_XIDS = {
    48: "double-bit ECC error",
    64: "a row of memory could not be remapped",
    74: "NVLink error",
    79: "GPU has fallen off the bus",
    95: "uncontained ECC error",
    119: "its GSP does not answer",
    120: "its GSP has failed",
}
"""The driver's numbers for errors of the hardware (https://docs.nvidia.com/deploy/xid-errors/); 13, 31 and 43, for
example, are usually the program's, and 94, a contained error, ends one process and leaves the GPU as good as new."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU, as the driver describes it."""

    index: int
    """Its number on the machine's bus."""
    uuid: str = ""
    pci: str = ""
    """As in /sys: `0000:17:00.0`."""
    lost: str = ""
    """Why it cannot be asked, in the driver's words; empty: it can."""
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


def broke_since(before: Sequence[Gpu], now: Sequence[Gpu], xids: Sequence[tuple[int, int]] = ()) -> str | None:
    """What has broken since then, in a sentence; None: nothing that shows.

    `xids`: errors that the driver has reported meanwhile, each with the number of its GPU.
    """
    for index, xid in xids:
        if xid in BROKEN_XIDS:
            return f"GPU {index}: Xid {xid}, {BROKEN_XIDS[xid]}"
    known, present = {gpu.uuid: gpu for gpu in before if gpu.uuid}, {gpu.uuid for gpu in now}
    for gpu in now:
        then = known.get(gpu.uuid, Gpu(gpu.index))
        if gpu.uncorrected > then.uncorrected:
            return f"GPU {gpu.index}: uncorrectable ECC error"
        problem = problem_now(gpu)
        if problem and not problem_now(then):
            return problem
    gone = [gpu.index for uuid, gpu in known.items() if uuid not in present and not any(one.lost for one in now)]
    return f"GPU {gone[0]} is gone" if gone else None


def nodes_of(gpus: Sequence[Gpu], env: Mapping[str, str], processes: int, root: Path = Path("/")) -> list[int | None]:
    """The NUMA node of each process's GPU: the one with its local rank among those that are visible."""
    names = [name.strip() for name in env.get(VISIBLE, ",".join(str(gpu.index) for gpu in gpus)).split(",")]
    by_name = {name: gpu for gpu in gpus for name in (str(gpu.index), gpu.uuid) if name}
    chosen = [by_name.get(name) for name in names[:processes]]
    return [*(_node(gpu, root) for gpu in chosen), *([None] * (processes - len(chosen)))]


def _node(gpu: Gpu | None, root: Path) -> int | None:
    if gpu is None or not gpu.pci:
        return None
    try:
        node = int((root / "sys/bus/pci/devices" / gpu.pci / "numa_node").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
    return node if node >= 0 else None  # -1: the firmware does not say.
