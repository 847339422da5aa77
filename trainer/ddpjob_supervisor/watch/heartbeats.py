"""Reads the heartbeats of a node's ranks."""

import math
import os
import time
from pathlib import Path

from ddpjob_rank.moments import rfc3339
from ddpjob_rank.reporting.heartbeat import (
    AS_ASKED,
    COUNTED,
    COUNTED_ANEW,
    EMPTY,
    FILE_BYTES,
    FROM_CHECKPOINT,
    NOTHING_SAVED,
    PARTS,
    Record,
    decode,
)
from ddpjob_rank.reporting.result import result_file
from ddpjob_rank.reporting.teller import ENDING, STARTING, TRAINING

from .beat import Beat, Checkpoint

TRIES = 3
"""How many times to read a file if neither of its slots is intact, as when two writes happen during a read. If all
these reads fail, the last good record remains valid."""

BEGINS = {FROM_CHECKPOINT: "FromCheckpoint", AS_ASKED: "AsAsked", NOTHING_SAVED: "NothingSaved"}

USUAL = frozenset({STARTING, TRAINING, ENDING})
"""Activities that a program does not report again while they go on."""

_NO_FILE = -1


class Heartbeats:
    """Creates a heartbeat file for each rank of this node, and reads what the ranks write into it."""

    def __init__(self, directory: Path, count: int) -> None:
        """Creates the files, in a directory to which no other user may write.

        Raises:
            OSError: The files cannot be created.
        """
        self._directory = directory
        self._files = [_NO_FILE] * count
        self._last: list[Record | None] = [None] * count
        for local_rank in range(count):
            self.reset(local_rank)

    def path(self, local_rank: int) -> Path:
        """The path of a rank's file, for the rank's environment. It is the same in all attempts."""
        return self._directory / str(local_rank)

    def reset(self, local_rank: int) -> None:
        """Creates a new file before a rank is started, because earlier processes may still write to the old one.

        Also deletes the rank's former results, because the directory may be in memory.
        """
        self._forget(local_rank)
        path = self.path(local_rank)
        for result in self._directory.glob(result_file(path, "*").name):
            result.unlink(missing_ok=True)
        new = path.with_suffix(".new")
        new.write_bytes(EMPTY)
        self._files[local_rank] = os.open(new, os.O_RDONLY | os.O_CLOEXEC)
        new.replace(path)

    def read(self) -> list[Beat | None]:
        """The last report of each rank of this node, by local rank; None if there is none since the reset."""
        now = time.monotonic()
        return [_beat(record, now) if record else None for record in map(self._record, range(len(self._files)))]

    def close(self) -> None:
        """Closes the files."""
        for local_rank in range(len(self._files)):
            self._forget(local_rank)

    def _record(self, local_rank: int) -> Record | None:
        """The rank's last record.

        The file is not mapped, because a rank that truncates it would crash this process.
        """
        file = self._files[local_rank]
        for _ in range(TRIES if file != _NO_FILE else 0):
            if record := decode(os.pread(file, FILE_BYTES, 0)):
                self._last[local_rank] = record
                break
        return self._last[local_rank]

    def _forget(self, local_rank: int) -> None:
        file, self._files[local_rank], self._last[local_rank] = self._files[local_rank], _NO_FILE, None
        if file != _NO_FILE:
            os.close(file)


def _beat(record: Record, now: float) -> Beat:
    parts = {part: getattr(record, part) for part in PARTS}
    step_age = _known(now - record.step_at)
    activity_age = None if record.activity in USUAL else _known(now - record.activity_at)
    checkpoint = _whole(record.checkpoint_step)
    return Beat(
        rank=int(record.rank),
        attempt=int(record.attempt),
        activity=record.activity,
        activity_age=None if activity_age is None else max(0.0, activity_age),
        step=_whole(record.step),
        first_step=None if record.counted == COUNTED_ANEW else _whole(record.first_step),
        begins=BEGINS.get(record.begins),
        step_age=None if step_age is None else max(0.0, step_age),
        counted=record.counted in {COUNTED, COUNTED_ANEW},
        anew=record.counted == COUNTED_ANEW,
        reports=record.counted == 0,
        announces=record.announces == 1,
        epoch=_whole(record.epoch),
        total_steps=_whole(record.total_steps),
        loss=math.nan if record.loss_is_nan == 1 else _known(record.loss),
        samples=_whole(record.samples),
        step_seconds=_known(record.step_seconds),
        seconds={part: seconds for part, seconds in parts.items() if not math.isnan(seconds)},
        memory_bytes=_whole(record.memory_bytes),
        checkpoint=None if checkpoint is None else Checkpoint(checkpoint, rfc3339(record.checkpoint_at)),
        metrics=record.metrics,
    )


def _known(number: float) -> float | None:
    return None if math.isnan(number) else number


def _whole(number: float) -> int | None:
    return None if math.isnan(number) else int(number)
