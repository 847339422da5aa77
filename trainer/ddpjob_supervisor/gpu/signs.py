"""What the driver's errors and counters say of a GPU: whose fault they are, and whether the GPU can go on. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, IntEnum

from .health import Gpu


class Meaning(IntEnum):
    """What a sign means, the gravest last."""

    APPLICATION = 0
    """Nothing is wrong with the GPU: most often the program did it."""
    CONTAINED = 1
    """The process that met the error ends, and the GPU goes on as before."""
    BROKEN = 2
    """The GPU is of no use before it is reset, or at all."""


class Counter(Enum):
    """What is seen when the driver is asked; an Xid is what it reports by itself."""

    LOST = "lost"
    GONE = "gone"
    WORN_OUT = "worn out"
    UNCORRECTED = "uncorrected"
    SLOWED = "slowed"


Sign = int | Counter
"""The number of an Xid, or what a counter shows."""

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
"""After NVIDIA's catalog, by what it asks for at once ("Resolution Bucket, Immediate Action"): to reset the GPU or
restart its machine (RESET_GPU, RESTART_BM, and the workflows of 48 and 74, which come to that) is BROKEN; to restart
the program (RESTART_APP), or to ignore it, is not. 94 is the catalog's only memory error after which programs may be
run as before. A contained error is also counted as one that could not be corrected, so that the count alone does not
condemn a GPU: where it is worse, 48, 64, 95 or 140 comes with it.

Xids that are not listed say nothing here. Those of NVLink 5 (144 to 150) have to be decoded from their message, which
NVML does not pass on.
(https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html, 2026)
"""


@dataclass(frozen=True, slots=True)
class Fact:
    """Something that has happened to a GPU."""

    gpu: int | None
    """The index that it had before; None: it is not known which it was, or it was all of them."""
    sign: Sign
    message: str
    """A sentence, which names the GPU."""

    @property
    def meaning(self) -> Meaning:
        """What it means."""
        return SIGNS[self.sign][0]


def happened(before: Sequence[Gpu], now: Sequence[Gpu], xids: Iterable[tuple[int | None, int]] = ()) -> list[Fact]:
    """What has happened to these GPUs since then, the gravest first.

    `xids`: errors that the driver has reported meanwhile, each with the index of its GPU.
    """
    facts = [_fact(xid, index) for index, xid in xids if xid in SIGNS]
    known = {gpu.uuid: gpu for gpu in before if gpu.uuid}
    lost = {gpu.index for gpu in before if gpu.lost}
    for gpu in now:
        then = known.get(gpu.uuid, gpu)  # One that is new here has not changed.
        if gpu.lost and gpu.index not in lost:
            facts.append(_fact(Counter.LOST, gpu.index, gpu.lost))
        if gpu.worn_out and not then.worn_out:
            facts.append(_fact(Counter.WORN_OUT, then.index))
        if gpu.uncorrected > then.uncorrected:
            facts.append(_fact(Counter.UNCORRECTED, then.index))
        if gpu.slowed:
            facts.append(_fact(Counter.SLOWED, then.index, ", ".join(gpu.slowed)))
    if len(now) < len(before):  # Otherwise it may be one of which the driver says nothing at the moment.
        present = {gpu.uuid for gpu in now}
        facts += [_fact(Counter.GONE, gpu.index) for uuid, gpu in known.items() if uuid not in present]
    return sorted(facts, key=lambda fact: -fact.meaning)


def _fact(sign: Sign, index: int | None, detail: str = "") -> Fact:
    words = SIGNS[sign][1]
    who = "a GPU" if index is None else f"GPU {index}"
    told = f"{who} {words}" if isinstance(sign, Counter) else f"{who}: Xid {sign}, {words}"
    return Fact(index, sign, f"{told}: {detail}" if detail else told)
