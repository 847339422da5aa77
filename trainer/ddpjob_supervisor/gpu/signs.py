"""What the driver's errors and counters mean: is the program or the GPU at fault, and does the GPU still work?

Pure.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, IntEnum

from .health import Gpu


class Meaning(IntEnum):
    """The meaning of a sign. The last member is the most severe."""

    APPLICATION = 0
    """The GPU works. Usually the program is at fault."""
    CONTAINED = 1
    """The process that hit the error ends, and the GPU works as before."""
    BROKEN = 2
    """The GPU is unusable until it is reset, or permanently."""


class Counter(Enum):
    """A sign that is found by querying the driver.

    The other signs are Xids, which the driver reports without a query.
    """

    LOST = "lost"
    GONE = "gone"
    WORN_OUT = "worn out"
    UNCORRECTED = "uncorrected"
    SLOWED = "slowed"


Sign = int | Counter
"""The number of an Xid, or a counter."""

SIGNS: Mapping[Sign, tuple[Meaning, str]] = {
    11: (Meaning.APPLICATION, "invalid or corrupted push buffer stream"),
    13: (Meaning.APPLICATION, "graphics engine exception"),
    25: (Meaning.APPLICATION, "invalid or illegal push buffer stream"),
    31: (Meaning.APPLICATION, "memory page fault"),
    32: (Meaning.APPLICATION, "invalid or corrupted push buffer stream"),
    43: (Meaning.APPLICATION, "reset of a channel after a fault of the program"),
    45: (Meaning.APPLICATION, "cleanup after the process ended"),
    69: (Meaning.APPLICATION, "graphics engine class error"),
    137: (Meaning.APPLICATION, "illegal access over NVLink"),
    Counter.SLOWED: (Meaning.APPLICATION, "is slowed down"),
    94: (Meaning.CONTAINED, "contained memory error"),
    Counter.UNCORRECTED: (Meaning.CONTAINED, "has had an ECC error that could not be corrected"),
    46: (Meaning.BROKEN, "GPU stopped processing"),
    48: (Meaning.BROKEN, "double-bit ECC error"),
    62: (Meaning.BROKEN, "halt of its microcontroller"),
    64: (Meaning.BROKEN, "a row of memory could not be remapped"),
    74: (Meaning.BROKEN, "NVLink error"),
    79: (Meaning.BROKEN, "GPU has fallen off the bus"),
    95: (Meaning.BROKEN, "uncontained memory error"),
    109: (Meaning.BROKEN, "context switch timeout"),
    110: (Meaning.BROKEN, "security fault"),
    119: (Meaning.BROKEN, "its GSP does not answer"),
    120: (Meaning.BROKEN, "its GSP has failed"),
    136: (Meaning.BROKEN, "link training failed"),
    140: (Meaning.BROKEN, "unrecovered ECC error"),
    143: (Meaning.BROKEN, "initialization failed"),
    158: (Meaning.BROKEN, "fatal timeout"),
    Counter.LOST: (Meaning.BROKEN, "does not answer"),
    Counter.GONE: (Meaning.BROKEN, "is gone"),
    Counter.WORN_OUT: (Meaning.BROKEN, "has broken memory that can no longer be replaced"),
}
"""From NVIDIA's catalog, by its column "Resolution Bucket, Immediate Action". An error is BROKEN if the GPU must be
reset or its machine restarted (RESET_GPU, RESTART_BM, and the workflows of 48 and 74, which lead to a reset or a
restart). It is not BROKEN if only the program must be restarted (RESTART_APP), or if the error may be ignored. 94 is
the catalog's only memory error after which programs may run as before. A contained error also raises the count of
uncorrected errors, so the count alone does not condemn a GPU: a worse error also reports 48, 64, 95 or 140.

Xids that are not listed are ignored. The Xids of NVLink 5 (144 to 150) have to be decoded from their message, which
NVML does not pass on. (https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html, 2026)"""


@dataclass(frozen=True, slots=True)
class Fact:
    """Something that has happened to a GPU."""

    gpu: int | None
    """The GPU's index at the beginning of the attempt; None if it is unknown, or if all GPUs are affected."""
    sign: Sign
    message: str
    """A sentence that names the GPU."""

    @property
    def meaning(self) -> Meaning:
        """The meaning of the sign."""
        return SIGNS[self.sign][0]


def happened(before: Sequence[Gpu], now: Sequence[Gpu], xids: Iterable[tuple[int | None, int]] = ()) -> list[Fact]:
    """What has happened to the GPUs between the states `before` and `now`, the most severe first.

    `xids` are the errors that the driver has reported meanwhile, each with the index of its GPU.
    """
    facts = [_fact(xid, index) for index, xid in xids if xid in SIGNS]
    known = {gpu.uuid: gpu for gpu in before if gpu.uuid}
    lost = {gpu.index for gpu in before if gpu.lost}
    for gpu in now:
        then = known.get(gpu.uuid, gpu)  # A GPU that was not in `before` counts as unchanged.
        if gpu.lost and gpu.index not in lost:
            facts.append(_fact(Counter.LOST, gpu.index, gpu.lost))
        if gpu.worn_out and not then.worn_out:
            facts.append(_fact(Counter.WORN_OUT, then.index))
        if gpu.uncorrected > then.uncorrected:
            facts.append(_fact(Counter.UNCORRECTED, then.index))
        if gpu.slowed:
            facts.append(_fact(Counter.SLOWED, then.index, ", ".join(gpu.slowed)))
    # If a UUID is missing but the number of GPUs is unchanged, the driver just does not report that UUID right now.
    if len(now) < len(before):
        present = {gpu.uuid for gpu in now}
        facts += [_fact(Counter.GONE, gpu.index) for uuid, gpu in known.items() if uuid not in present]
    return sorted(facts, key=lambda fact: -fact.meaning)


def _fact(sign: Sign, index: int | None, detail: str = "") -> Fact:
    description = SIGNS[sign][1]
    gpu = "a GPU" if index is None else f"GPU {index}"
    message = f"{gpu} {description}" if isinstance(sign, Counter) else f"{gpu}: Xid {sign}, {description}"
    return Fact(index, sign, f"{message}: {detail}" if detail else message)
