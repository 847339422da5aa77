"""Prints lines of progress: every few steps, each rank prints its own loss and pace."""

import time
from dataclasses import dataclass

from ddpjob_rank.console import record
from torch import Tensor

from .position import Position


@dataclass(frozen=True, slots=True)
class Line:
    """The values of a printed line: means over the steps since the previous line."""

    loss: float | None
    """None if this rank had no samples in these steps."""
    steps_per_second: float


class ProgressLines:
    """Prints a line for the first step, the last step, and each step whose number is a multiple of `log_every`.

    If several ranks write to one log, `rank` distinguishes them; None if there is only one.

    The loss is read from the device only when it is printed, because reading it makes the CPU wait.
    """

    def __init__(
        self,
        position: Position,
        epochs: int | None,
        total_steps: int,
        *,
        batch_size: int,
        log_every: int,
        rank: int | None,
    ) -> None:
        self.epochs = epochs
        self.total_steps = total_steps
        self.loss: float | None = None
        """The mean loss that was last printed."""
        self._rank = rank
        self._position = position
        self._batch_size = batch_size
        self._log_every = log_every
        self._first = position.step + 1
        self._began = time.monotonic()
        self._window = _Window()

    def resume(self) -> None:
        """Starts to measure afresh, because the time since the last step was not spent on training."""
        self._window = _Window()

    def step(self, loss: Tensor | None) -> Line | None:
        """Counts a finished step, and returns the values of its line if one is printed.

        `loss` is this rank's mean loss; None if the rank had no samples.
        """
        self._window.add(loss)
        step = self._position.step
        if step not in {self._first, self.total_steps} and step % self._log_every:
            return None
        line = self._print(step)
        self._window = _Window()
        return line

    def _print(self, step: int) -> Line:
        now = time.monotonic()
        line = Line(self._window.mean_loss(), self._window.steps / self._window.seconds(now))
        self.loss = self.loss if line.loss is None else line.loss
        if step == self._first:
            # The first step includes one-time work, so later estimates of the remaining time leave it out.
            seconds_per_step = self._window.seconds(now)
            self._began = now
        else:
            seconds_per_step = (now - self._began) / (step - self._first)
        record(
            "progress",
            epoch=self._position.epoch_of(self.epochs),
            step=f"{step}/{self.total_steps}",
            loss=None if line.loss is None else f"{line.loss:.4f}",
            samples_per_second=round(line.steps_per_second * self._batch_size),
            rank=self._rank,
            eta_seconds=round((self.total_steps - step) * seconds_per_step),
        )
        return line


class _Window:
    """The steps since the last line."""

    def __init__(self) -> None:
        self.steps = 0
        self._losses = 0
        self._loss: Tensor | float = 0.0
        self._began = time.monotonic()

    def add(self, loss: Tensor | None) -> None:
        if loss is not None:
            self._loss = self._loss + loss
            self._losses += 1
        self.steps += 1

    def mean_loss(self) -> float | None:
        return float(self._loss) / self._losses if self._losses else None

    def seconds(self, now: float) -> float:
        return now - self._began
