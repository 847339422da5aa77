"""What a rank tells its supervisor, as bytes in a file of one page: written by one process, read by another, no lock.

The file has two slots, which are written in turn, each with a number and a checksum. The newest whole slot counts: a
writer that is killed while it writes leaves the other one, and a reader that comes in between sees that what it got
is not whole, on any processor.
"""

import json
import math
import struct
import zlib
from dataclasses import dataclass, field
from operator import attrgetter

SIGNATURE = b"DDPJHB\0\x03"
"""What each file begins with; the last byte is the version."""

FILE_BYTES = 4096
EMPTY = SIGNATURE.ljust(FILE_BYTES, b"\0")
"""A file into which nothing has been written. Its page exists, so that writing cannot fail for lack of memory."""

SLOTS = (64, 2080)
"""Where the two begin."""

LARGEST = 2**53
"""Whole numbers are exact up to here."""

PARTS = ("data", "forward", "backward", "communication", "optimizer")
"""What a step's seconds consist of. Communication is the part of backward in which it waits for other processes."""

COUNTED, COUNTED_ANEW = 1.0, 2.0
"""Steps are counted for a program that does not report them; from the start again if it is unknown at which one it
went on after a restart."""


FROM_CHECKPOINT, AS_ASKED, NOTHING_SAVED = 1.0, 2.0, 3.0
"""Where a program begins, by its own account: where a checkpoint that it has loaded ends; at the beginning, because
it was told to; or there because it has looked for a checkpoint and there is none."""


@dataclass(slots=True)
class Record:
    """Everything that is told. An unknown number is NaN."""

    activity: str = "starting"
    metrics: dict[str, float] = field(default_factory=dict)
    rank: float = math.nan
    attempt: float = math.nan
    step: float = math.nan
    """The last finished one."""
    step_at: float = math.nan
    """When it was finished, by the monotonic clock, which all processes of a machine share."""
    first_step: float = math.nan
    """The first step that was finished in this attempt."""
    begins: float = math.nan
    """FROM_CHECKPOINT, AS_ASKED or NOTHING_SAVED."""
    counted: float = math.nan
    """0 if the program reports its steps; otherwise COUNTED or COUNTED_ANEW."""
    announces: float = math.nan
    """1 if the program has shown that it announces what takes long between two steps."""
    epoch: float = math.nan
    total_steps: float = math.nan
    loss: float = math.nan
    loss_is_nan: float = math.nan
    """1 if the loss is known to be NaN: it has diverged."""
    samples: float = math.nan
    """Of a step, of all processes together."""
    step_seconds: float = math.nan
    """The recent mean, as for the next ones, of which it consists as far as they are known."""
    data: float = math.nan
    forward: float = math.nan
    backward: float = math.nan
    communication: float = math.nan
    optimizer: float = math.nan
    memory_bytes: float = math.nan
    checkpoint_step: float = math.nan
    checkpoint_at: float = math.nan
    """Seconds since 1970."""


_NUMBERS = Record.__slots__[2:]
_numbers = attrgetter(*_NUMBERS)
_CHECKSUM = struct.Struct("<I")
_CONTENT = struct.Struct(f"<QHH{len(_NUMBERS)}d")
"""The slot's number, the bytes of activity and metrics, which follow, and the numbers: one type for all of them,
which holds whole numbers up to 2**53."""

TEXT_BYTES = SLOTS[1] - SLOTS[0] - _CHECKSUM.size - _CONTENT.size
"""Room for activity and metrics together."""


def encode(number: int, record: Record, metrics: bytes) -> bytes:
    """A slot with the contents of a record; the metrics come encoded, since they change less often than the rest."""
    activity = record.activity.encode(errors="replace")
    content = _CONTENT.pack(number, len(activity), len(metrics), *_numbers(record)) + activity + metrics
    return _CHECKSUM.pack(zlib.crc32(content)) + content


def encode_metrics(metrics: dict[str, float]) -> bytes:
    """Metrics as they are stored in a slot."""
    return json.dumps(metrics, separators=(",", ":")).encode()


def decode(file: bytes) -> Record | None:
    """The newest record of a file; None if neither slot is whole."""
    if len(file) < FILE_BYTES:
        return None
    contents = (_content(file, slot) for slot in SLOTS)
    newest = max((content for content in contents if content), default=None, key=_number)
    if newest is None:
        return None
    _, activity, metrics, *numbers = _CONTENT.unpack_from(newest)
    text = newest[_CONTENT.size :]
    return Record(
        text[:activity].decode(errors="replace"), json.loads(text[activity : activity + metrics] or b"{}"), *numbers
    )


def newest_number(file: bytes) -> int:
    """The number of the newest whole slot; 0 if neither is."""
    return max((_number(content) for content in (_content(file, slot) for slot in SLOTS) if content), default=0)


def _content(file: bytes, slot: int) -> bytes | None:
    """The content of a slot, if it is whole."""
    begin = slot + _CHECKSUM.size
    _, activity, metrics, *_ = _CONTENT.unpack_from(file, begin)
    content = file[begin : begin + _CONTENT.size + activity + metrics]
    (checksum,) = _CHECKSUM.unpack_from(file, slot)
    return content if checksum == zlib.crc32(content) else None


def _number(content: bytes) -> int:
    return int.from_bytes(content[:8], "little")
