"""Records a gang's progress and the program's metrics over time, for the curves that `ddpjob report` draws."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ddpjob_rank.environment import Env
from ddpjob_rank.machine import storage
from ddpjob_rank.recording.event import Event
from ddpjob_rank.recording.event_file import EventFile
from ddpjob_rank.recording.json_lines import JsonLines

from .progress import Progress

NAME = "progress.jsonl"

POINT_SECONDS = 1.0
SHARE = 0.001
"""A point is recorded only if its step is larger than the last point's step by more than this share. So even the
longest run has only about ten thousand points."""

CLOSING_SECONDS = 0.5


def directory_of(env: Mapping[str, str]) -> Path | None:
    """The directory for the curve: in a local run's directory or beside the checkpoints, or None without either."""
    parent = env.get(Env.RUN_DIR) or storage.directory_of(env.get(Env.CHECKPOINT_DIR))
    return Path(parent) / "metrics" if parent else None


class Curve:
    """Follows the progress of a gang through its attempts.

    Pure: passes each event that is to be recorded to `write`.
    """

    def __init__(self, write: Callable[[Event], None], facts: Mapping[str, Any] = MappingProxyType({})) -> None:
        """`facts` are recorded at each start: with what the program runs."""
        self._write = write
        self._facts = facts
        self._attempt: int | None = None
        self._seen: Event | None = None
        self._written: Event | None = None

    def note(self, attempt: int, progress: Progress, now: float) -> None:
        """Takes the gang's progress at `now`, in seconds since the epoch."""
        values = {
            "epoch": progress.epoch,
            "total_steps": progress.total_steps,
            "loss": progress.loss,
            "samples_per_second": progress.samples_per_second,
            "metrics": progress.metrics or None,
        }
        known = {name: value for name, value in values.items() if value is not None}
        if attempt != self._attempt:
            self._begin(attempt, progress, now)
        self._seen = Event("progress", progress.last_step_time or now, attempt, progress.step, known)
        if self._is_due(self._seen):
            self.flush()

    def flush(self) -> None:
        """Writes the last progress that was noted, unless it has been written already."""
        if self._seen is not None and self._seen is not self._written:
            self._write(self._seen)
            self._written = self._seen

    def finish(self, now: float) -> None:
        """Records that the program is done."""
        self.flush()
        if self._seen is not None:
            self._write(Event("finished", now, self._seen.attempt, self._seen.step, {}))

    def _begin(self, attempt: int, progress: Progress, now: float) -> None:
        """Records the start of an attempt, with its step as far as the step is known.

        The first step may be seen only some time after the start. After a restart, steps may be counted from 1 again.
        """
        step = progress.step if progress.first is None else progress.first
        self.flush()
        self._attempt, self._seen, self._written = attempt, None, None
        before = max(0, step - 1) if attempt > 1 else 0
        self._write(Event("started", now, attempt, before, {**self._facts, "seen": True, "counted": progress.anew}))

    def _is_due(self, seen: Event) -> bool:
        last = self._written
        if last is None or seen.step < last.step:
            return True
        return seen.time - last.time >= POINT_SECONDS and seen.step - last.step > SHARE * last.step


@contextmanager
def recording(
    directory: Path | None,
    add: Callable[[Event], None] = lambda _: None,
    facts: Mapping[str, Any] = MappingProxyType({}),
) -> Iterator[Curve]:
    """Yields a curve, and writes its points, including the last, to a file in `directory`, unless that is None.

    The directory may be on a file server that hangs, so the gang never waits for a write. `add` gets the points, too.
    For `facts` see `Curve`.
    """
    if directory is None:
        curve = Curve(add, facts)
        yield curve
        curve.flush()
        return
    file = EventFile(
        directory / NAME, lambda: _opened(directory), timeout_seconds=0.0, closing_seconds=CLOSING_SECONDS
    )

    def write(event: Event) -> None:
        file.add(event)
        add(event)

    curve = Curve(write, facts)
    yield curve
    curve.flush()
    file.close()


def _opened(directory: Path) -> JsonLines:
    directory.mkdir(parents=True, exist_ok=True)
    return JsonLines(directory, NAME)
