"""The format of the heartbeat file: one page, which one process writes and another reads, without a lock.

The file has two slots, which are written in turn. Each has a number and a checksum, and the newest intact slot
counts. If a writer is killed while it writes, the other slot is still intact. If a reader reads during a write, it
finds that the checksum is wrong, on any processor.
"""

import json
import math
import struct
import zlib
from dataclasses import dataclass, field
from operator import attrgetter

SIGNATURE = b"DDPJHB\0\x05"
"""The first bytes of the file; the last of them is the version."""

FILE_BYTES = 4096
EMPTY = SIGNATURE.ljust(FILE_BYTES, b"\0")
"""The content of a new file. Writing it allocates the page, so that a later write cannot fail for lack of memory."""

SLOTS = (64, 2080)
"""The offsets of the two slots."""

LARGEST = 2**53
"""The largest number up to which a float can hold every whole number exactly."""

PARTS = ("data", "forward", "backward", "communication", "optimizer")
"""The parts of a step. Communication is the part of backward in which a rank waits for the other ranks."""

COUNTED, COUNTED_ANEW = 1.0, 2.0
"""COUNTED: steps are counted because the program does not report them. COUNTED_ANEW: they are counted from 0 after a
restart, because it is unknown at which step the program continued."""


FROM_CHECKPOINT, AS_ASKED, NOTHING_SAVED = 1.0, 2.0, 3.0
"""Where a program begins: after a checkpoint that it has loaded; at the first step, because it was asked to; or at
the first step, because it found no checkpoint."""


@dataclass(slots=True)
class Record:
    """Everything that a rank reports. An unknown number is NaN."""

    activity: str = "starting"
    metrics: dict[str, float] = field(default_factory=dict)
    step: float = math.nan
    """The number of the last finished step."""
    step_at: float = math.nan
    """When that step finished, on the monotonic clock, which all processes of a machine share."""
    step_seconds: float = math.nan
    """The recent mean time of a step."""
    epoch: float = math.nan
    loss: float = math.nan
    loss_is_nan: float = math.nan
    """1 if the loss is NaN, because training has diverged; otherwise NaN."""
    rank: float = math.nan
    attempt: float = math.nan
    first_step: float = math.nan
    """The number of the first step that finished in this attempt."""
    begins: float = math.nan
    """FROM_CHECKPOINT, AS_ASKED or NOTHING_SAVED."""
    counted: float = math.nan
    """0 if the program reports its steps; otherwise COUNTED or COUNTED_ANEW."""
    activity_at: float = math.nan
    """When the program last reported its activity, by the same clock. It may report the same activity again while
    that goes on."""
    announces: float = math.nan
    """1 if the program has announced, at least once, an activity that takes long between two steps."""
    total_steps: float = math.nan
    samples: float = math.nan
    """The number of samples per step, across all processes."""
    data: float = math.nan
    """The recent mean times of a step's parts, if they are known."""
    forward: float = math.nan
    backward: float = math.nan
    communication: float = math.nan
    optimizer: float = math.nan
    memory_bytes: float = math.nan
    checkpoint_step: float = math.nan
    checkpoint_at: float = math.nan
    """Seconds since the epoch."""


_STEP_NUMBERS, _OTHER_NUMBERS = Record.__slots__[2:8], Record.__slots__[8:]
"""Which numbers change in each step, and which do not. The others are encoded only when they have changed, because
their memory would have to come into the processor's caches again after each step."""

_others = attrgetter(*_OTHER_NUMBERS)
_CHECKSUM = struct.Struct("<I")
_STEP = struct.Struct(f"<Q{len(_STEP_NUMBERS)}d")
"""The slot's number, and the numbers of the step. All numbers of a record are doubles, which hold every whole number
up to 2**53 exactly."""
_OTHERS = struct.Struct(f"<HH{len(_OTHER_NUMBERS)}d")
"""The lengths of the activity and of the metrics, which follow this struct, and the other numbers."""
_CONTENT_BYTES = _STEP.size + _OTHERS.size

TEXT_BYTES = SLOTS[1] - SLOTS[0] - _CHECKSUM.size - _CONTENT_BYTES
"""The space in a slot for the activity and the metrics together."""


def encode(number: int, record: Record, others: bytes) -> bytes:
    """Encodes a record as a slot. `others` is what `encode_others` returns for it."""
    step = record.step, record.step_at, record.step_seconds, record.epoch, record.loss, record.loss_is_nan
    content = _STEP.pack(number, *step) + others
    return zlib.crc32(content).to_bytes(_CHECKSUM.size, "little") + content


def encode_others(record: Record, metrics: bytes) -> bytes:
    """Encodes those fields of a record that do not change in each step. The metrics are already encoded."""
    activity = record.activity.encode(errors="replace")
    return _OTHERS.pack(len(activity), len(metrics), *_others(record)) + activity + metrics


def encode_metrics(metrics: dict[str, float]) -> bytes:
    """Encodes metrics in the form in which a slot stores them."""
    return json.dumps(metrics, separators=(",", ":")).encode()


def decode(file: bytes) -> Record | None:
    """The newest record in a file; None if neither slot is intact."""
    if len(file) < FILE_BYTES:
        return None
    contents = (_content(file, slot) for slot in SLOTS)
    newest = max((content for content in contents if content), default=None, key=_number)
    if newest is None:
        return None
    _, *step = _STEP.unpack_from(newest)
    activity, metrics, *others = _OTHERS.unpack_from(newest, _STEP.size)
    text = newest[_CONTENT_BYTES:]
    return Record(
        text[:activity].decode(errors="replace"),
        json.loads(text[activity : activity + metrics] or b"{}"),
        *step,
        *others,
    )


def newest_number(file: bytes) -> int:
    """The number of the newest intact slot; 0 if no slot is intact."""
    return max((_number(content) for content in (_content(file, slot) for slot in SLOTS) if content), default=0)


def _content(file: bytes, slot: int) -> bytes | None:
    """The content of a slot; None if the slot is not intact."""
    begin = slot + _CHECKSUM.size
    activity, metrics, *_ = _OTHERS.unpack_from(file, begin + _STEP.size)
    content = file[begin : begin + _CONTENT_BYTES + activity + metrics]
    (checksum,) = _CHECKSUM.unpack_from(file, slot)
    return content if checksum == zlib.crc32(content) else None


def _number(content: bytes) -> int:
    return int.from_bytes(content[:8], "little")
