"""The position of a run: how far it has come."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from ddpjob_rank.reporting import report as reporting


@dataclass(slots=True)
class Position:
    """What has been trained so far, and what the process is doing, for a failure report.

    The position determines the order of the data: the next sample is at `samples` in the permutation of `epoch`.
    """

    step: int = 0
    """The number of finished steps."""
    epoch: int = 1
    """The present epoch; counts from 1."""
    samples: int = 0
    """The number of samples of this epoch on which all processes together have trained."""
    activity: str = "starting"

    def epoch_of(self, epochs: int | None) -> str:
        """The present epoch as text, with the number of epochs if that is known: `3/10`."""
        return f"{self.epoch}" if epochs is None else f"{self.epoch}/{epochs}"

    def advance(self, samples: int) -> None:
        """Counts a finished step, which took this many samples across all processes."""
        self.step += 1
        self.samples += samples

    def next_epoch(self) -> None:
        """Moves on to the beginning of the next epoch."""
        self.epoch += 1
        self.samples = 0

    @contextmanager
    def during(self, activity: str) -> Iterator[None]:
        """A context for an activity of the run. After an error in it, a failure report names the activity."""
        before, self.activity = self.activity, activity
        with reporting.activity(activity):
            yield
        self.activity = before
