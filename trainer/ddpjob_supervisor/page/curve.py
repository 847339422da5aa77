"""Records a gang's progress over time, and what its program reported: `ddpjob report` draws curves from it."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from ddpjob_rank.environment import Env
from ddpjob_rank.recording.event import Event
from ddpjob_rank.recording.event_file import EventFile
from ddpjob_rank.recording.json_lines import JsonLines

from .progress import Progress

NAME = "progress.jsonl"

POINT_SECONDS = 1.0
SHARE = 0.001
"""A point is this much further than the one before, so that the longest run has about ten thousand of them."""

CLOSING_SECONDS = 0.5


def directory_of(env: Mapping[str, str]) -> Path | None:
    """Where it is kept: in the run's directory here, or beside the checkpoints; None: nothing outlives the pod."""
    place = env.get(Env.RUN_DIR) or env.get(Env.CHECKPOINT_DIR)
    return Path(place) / "metrics" if place else None


class Curve:
    """Follows the progress of a gang through its attempts. Pure: `write` takes what should be kept."""

    def __init__(self, write: Callable[[Event], None]) -> None:
        self._write = write
        self._attempt: int | None = None
        self._seen: Event | None = None
        self._written: Event | None = None

    def note(self, attempt: int, progress: Progress, now: float) -> None:
        """Notes how far the gang has got at `now`, in seconds of the epoch."""
        values = {
            "epoch": progress.epoch,
            "total_steps": progress.total_steps,
            "loss": progress.loss,
            "samples_per_second": progress.samples_per_second,
            "metrics": progress.metrics or None,
        }
        told = {name: value for name, value in values.items() if value is not None}
        if attempt != self._attempt:
            self._begin(attempt, progress, now)
        self._seen = Event("progress", progress.last_step_time or now, attempt, progress.step, told)
        if self._is_due(self._seen):
            self.flush()

    def flush(self) -> None:
        """Writes what was seen last, too."""
        if self._seen is not None and self._seen is not self._written:
            self._write(self._seen)
            self._written = self._seen

    def finish(self, now: float) -> None:
        """Notes that the program is done."""
        self.flush()
        if self._seen is not None:
            self._write(Event("finished", now, self._seen.attempt, self._seen.step, {}))

    def _begin(self, attempt: int, progress: Progress, now: float) -> None:
        """The step at which it begins is unknown: the first that is seen may come soon after it, or counted anew."""
        step = progress.step if progress.first is None else progress.first
        self.flush()
        self._attempt, self._seen, self._written = attempt, None, None
        before = max(0, step - 1) if attempt > 1 else 0
        self._write(Event("started", now, attempt, before, {"seen": True, "counted": progress.anew}))

    def _is_due(self, seen: Event) -> bool:
        last = self._written
        if last is None or seen.step < last.step:
            return True
        return seen.time - last.time >= POINT_SECONDS and seen.step - last.step > SHARE * last.step


@contextmanager
def recording(directory: Path | None) -> Iterator[Curve]:
    """A curve whose points go into a file, the last one included; without a directory, nowhere.

    The directory may be on a server that hangs: the gang never waits for it.
    """
    if directory is None:
        yield Curve(lambda _: None)
        return
    file = EventFile(directory / NAME, lambda: _opened(directory), patience=0.0, closing=CLOSING_SECONDS)
    curve = Curve(file.add)
    yield curve
    curve.flush()
    file.close()


def _opened(directory: Path) -> JsonLines:
    directory.mkdir(parents=True, exist_ok=True)
    return JsonLines(directory, NAME)
