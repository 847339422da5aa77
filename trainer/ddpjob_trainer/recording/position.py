"""How far a run has come."""

from dataclasses import dataclass


@dataclass(slots=True)
class Position:
    """What has been trained so far, and what the process is doing, for a failure report.

    The position determines the order of the data: the next sample is at `samples` in the permutation of `epoch`.
    """

    step: int = 0
    """Finished steps."""
    epoch: int = 1
    """The present epoch; counts from 1."""
    samples: int = 0
    """Samples of this epoch that all processes together have trained on."""
    activity: str = "starting"

    def epoch_of(self, epochs: int | None) -> str:
        """The present epoch, with the number of epochs if that is known, as it is printed."""
        return f"{self.epoch}" if epochs is None else f"{self.epoch}/{epochs}"

    def advance(self, samples: int) -> None:
        """Moves on by one finished step, which took this many samples of all processes."""
        self.step += 1
        self.samples += samples

    def next_epoch(self) -> None:
        """Moves on to the beginning of the next epoch."""
        self.epoch += 1
        self.samples = 0
