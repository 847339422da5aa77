"""Steps as ranks note them in a file: by these a bench sees when training goes on, whatever runs it.

A line is `rank step time attempt pid`, with the samples of the step after it, separated by commas, where they are
noted. Lines are appended with one write each, so they are whole.
"""

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path

DEADLINE_SECONDS = 90
"""Until training must have gone on: whatever takes longer has failed."""
LOOK_SECONDS = 0.02
"""The steps carry their own times: how often the file is read adds nothing to what is measured."""


class NotGoneOnError(Exception):
    """Training did not go on."""


@dataclass(frozen=True, slots=True)
class Step:
    """A finished step of a rank."""

    rank: int
    step: int
    time: float
    """Seconds since 1970."""
    attempt: int
    pid: int
    samples: tuple[int, ...] = ()


@dataclass
class Notes:
    """The steps of a world, read as they come: a file that grows for minutes is not read twice."""

    path: Path
    world: int
    steps: list[Step] = field(default_factory=list)
    last: dict[int, Step] = field(default_factory=dict)
    """Of each rank."""
    _offset: int = 0

    def read(self) -> list[Step]:
        """The steps that are new."""
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
        """The processes that have noted the last step of each rank."""
        return {step.pid for step in self.last.values()}

    def others(self, before: Collection[int], over: Callable[[], bool] = lambda: False) -> dict[int, Step]:
        """The first step of each rank, once each has made one in a process that is none of those before.

        Raises:
            NotGoneOnError: All has ended, or it takes too long.
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
        """Reads on for a while."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            time.sleep(min(left, 1.0))
            self.read()


def _step(line: str) -> Step:
    rank, step, at, attempt, pid, *samples = line.split()
    numbers = tuple(int(one) for one in samples[0].split(",")) if samples else ()
    return Step(int(rank), int(step), float(at), int(attempt), int(pid), numbers)
