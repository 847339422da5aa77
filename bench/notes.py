"""Reads the file in which ranks record their steps, so that a bench notices when training continues.

This works with any launcher. A line is `rank step time attempt pid` and, if the program records them, the samples of
the step, separated by commas. Each line is appended with a single write, so lines of several ranks do not mix.
"""

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path

DEADLINE_SECONDS = 90
"""If training has not continued after this time, it counts as failed."""
LOOK_SECONDS = 0.02
"""How often the file is read. This does not affect the figures, because each step is recorded with its time."""


class NotGoneOnError(Exception):
    """Training did not continue."""


@dataclass(frozen=True, slots=True)
class Step:
    """A finished step of a rank."""

    rank: int
    step: int
    time: float
    """Seconds since the epoch."""
    attempt: int
    pid: int
    samples: tuple[int, ...] = ()


@dataclass
class Notes:
    """The steps of all ranks. The file is read incrementally, because it grows for minutes."""

    path: Path
    world: int
    steps: list[Step] = field(default_factory=list)
    last: dict[int, Step] = field(default_factory=dict)
    """The last step of each rank."""
    _offset: int = 0

    def read(self) -> list[Step]:
        """Reads and returns the steps that were recorded since the last call."""
        try:
            with self.path.open("rb") as file:
                file.seek(self._offset)
                text = file.read()
        except FileNotFoundError:
            return []
        whole = text[: text.rfind(b"\n") + 1]
        self._offset += len(whole)
        fresh = [_step(line) for line in whole.decode().splitlines()]
        self.steps += fresh
        self.last |= {step.rank: step for step in fresh}
        return fresh

    def pids(self) -> set[int]:
        """The IDs of the processes that made the last step of each rank."""
        return {step.pid for step in self.last.values()}

    def others(self, before: Collection[int], over: Callable[[], bool] = lambda: False) -> dict[int, Step]:
        """Waits until each rank has finished a step in a process that is not in `before`; returns these steps.

        Raises:
            NotGoneOnError: Before this, `over` returned True, or DEADLINE_SECONDS passed.
        """
        first: dict[int, Step] = {}
        deadline = time.monotonic() + DEADLINE_SECONDS
        while len(first) < self.world:
            ended = over()
            for step in self.read():
                if step.pid not in before:
                    first.setdefault(step.rank, step)
            if len(first) < self.world and (ended or time.monotonic() > deadline):
                raise NotGoneOnError("it has ended" if ended else f"nothing for {DEADLINE_SECONDS} s")
            time.sleep(LOOK_SECONDS)
        return first

    def watch(self, seconds: float) -> None:
        """Reads new steps for this many seconds."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            time.sleep(min(left, 1.0))
            self.read()


def _step(line: str) -> Step:
    rank, step, at, attempt, pid, *samples = line.split()
    numbers = tuple(int(number) for number in samples[0].split(",")) if samples else ()
    return Step(int(rank), int(step), float(at), int(attempt), int(pid), numbers)
