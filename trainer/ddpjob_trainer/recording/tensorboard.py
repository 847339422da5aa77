"""Events for TensorBoard: a file for each start of a run, all in one directory, which is one run there."""

import socket
import struct
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from ddpjob_rank.recording.appending import AppendedFile
from ddpjob_rank.recording.event import Event
from tensorboardX.proto.event_pb2 import Event as Message
from tensorboardX.proto.event_pb2 import SessionLog
from tensorboardX.proto.summary_pb2 import Summary
from tensorboardX.record_writer import masked_crc32c

GROUPS = {"progress": "train", "evaluated": "eval", "timed": "time", "skipped": "data"}
"""Under which heading TensorBoard shows the numbers of an event; others are not shown."""


class EventFile:
    """The file of one start of a run, which goes on from a step.

    TensorBoard forgets what earlier starts wrote of later steps (its purge_step).

    Raises:
        OSError: It cannot be written.
    """

    def __init__(self, directory: Path, step: int) -> None:
        now = time.time()
        # It reads files in the order of their names. Two starts within one second follow each other in one file.
        self.path = directory / f"events.out.tfevents.{now:.0f}.{socket.gethostname()}"
        self._file = AppendedFile(self.path)
        self._append(Message(wall_time=now, file_version="brain.Event:2"))
        self._append(Message(wall_time=now, step=step + 1, session_log=SessionLog(status=SessionLog.START)))

    def write(self, event: Event) -> None:
        """Adds the numbers of an event, if TensorBoard shows it."""
        if event.word not in GROUPS:
            return
        numbers = dict(_numbers(GROUPS[event.word], event.values))
        values = [Summary.Value(tag=tag, simple_value=number) for tag, number in numbers.items()]
        self._append(Message(wall_time=event.time, step=event.step, summary=Summary(value=values)))

    def close(self) -> None:
        """Closes the file."""
        self._file.close()

    def _append(self, message: Message) -> None:
        """Adds a message as TensorFlow's record; tensorboardX's own writer would wait for the disk each time."""
        content = message.SerializeToString()
        length = struct.pack("<Q", len(content))
        self._file.append(b"".join((length, _checksum(length), content, _checksum(content))))


def _checksum(content: bytes) -> bytes:
    return struct.pack("<I", masked_crc32c(content))


def _numbers(group: str, values: Mapping[str, object]) -> Iterator[tuple[str, float]]:
    """Numbers by their tags: the part before the slash is the heading."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _numbers(f"{group}/{name}", value)
        elif isinstance(value, int | float):
            yield f"{group}/{name}", float(value)
