"""Events as TensorBoard reads them: a file for each start of a run, all in one directory, which is one run there."""

import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from tensorboardX.proto.event_pb2 import Event as Message
from tensorboardX.proto.event_pb2 import SessionLog
from tensorboardX.proto.summary_pb2 import Summary
from tensorboardX.record_writer import RecordWriter

from .event import Event

GROUPS = {"progress": "train", "evaluated": "eval", "timed": "time"}
"""Under which heading TensorBoard shows the numbers of an event; those of others it does not show."""


class EventFile:
    """The file of one start of a run, which goes on from a step.

    TensorBoard forgets what earlier starts wrote of later steps (its purge_step).

    Raises:
        OSError: It cannot be written.
    """

    def __init__(self, directory: Path, attempt: int, step: int) -> None:
        now = time.time()
        # It reads files in the order of their names, and two starts may be in one second.
        self.path = directory / f"events.out.tfevents.{now:.0f}.{socket.gethostname()}.{attempt:06}"
        self._file = RecordWriter(str(self.path))
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
        """Lets go of the file; what could not be written is lost."""
        with suppress(OSError):
            self._file.close()

    def _append(self, message: Message) -> None:
        self._file.write(message.SerializeToString())
        self._file.flush()


def _numbers(group: str, values: Mapping[str, object]) -> Iterator[tuple[str, float]]:
    """Numbers by their tags: what stands before the slash is the heading."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _numbers(f"{group}/{name}", value)
        elif isinstance(value, int | float):
            yield f"{group}/{name}", float(value)
