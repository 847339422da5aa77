"""Determines the order of samples: which process gets which sample at which step.

The order depends only on the seed, the epoch, and a cursor that counts samples. It does not depend on the number of
processes, or on what they did before. Thus a run can go on from any sample, with any number of processes.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from ddpjob_rank.console import counted
from ddpjob_rank.errors import ConfigError
from torch import Tensor

from ddpjob.random_state import derive_seed

Shuffle = Callable[[torch.Generator], Tensor]
"""A function that returns the indices of all samples in a random order."""


@runtime_checkable
class Shuffled(Protocol):
    """A data set that itself chooses a random order in which it can be read fast, from few files at a time."""

    def shuffled(self, generator: torch.Generator) -> Tensor:
        """The indices of all its samples in a random order."""


@dataclass(frozen=True, slots=True)
class Order:
    """How a data set is cut into steps, and each step into the ranks' parts. Each epoch has another permutation."""

    samples: int
    global_batch: int
    rank: int
    world_size: int
    seed: int
    shuffle: Shuffle | None = None
    """None means a uniformly random permutation."""
    drop_last: bool = True
    """Whether samples that do not fill a last step are dropped. Otherwise they are a smaller step. If they are fewer
    than the ranks, the step before takes them too."""

    def __post_init__(self) -> None:
        if self.global_batch > self.samples:
            raise ConfigError(
                f"one step takes {counted(self.global_batch, 'sample')} across all processes, but the data set has"
                f" only {self.samples}: use a smaller batch"
            )
        if self.global_batch < self.world_size:
            raise ConfigError(
                f"the global batch has {counted(self.global_batch, 'sample')}, but there are {self.world_size}"
                " processes: each needs at least one sample per step"
            )

    def steps(self, cursor: int = 0) -> int:
        """The number of steps left in an epoch after its first `cursor` samples."""
        left = max(0, self.samples - cursor)  # The data set may now be smaller than the cursor.
        whole, rest = divmod(left, self.global_batch)
        if self.drop_last or rest == 0:
            return whole
        return whole + (rest >= self.world_size or whole == 0)

    def after(self, cursor: int, steps: int) -> int:
        """The cursor after this many more steps."""
        ended = steps >= self.steps(cursor) and not self.drop_last
        return max(cursor, self.samples) if ended else cursor + steps * self.global_batch

    @property
    def part(self) -> slice:
        """This rank's part of each batch. The sizes of the ranks' parts differ by at most one sample."""
        return self._part(self.global_batch)

    @property
    def batch_size(self) -> int:
        """Samples of this rank per step."""
        return int(self.part.stop) - int(self.part.start)

    @property
    def weight(self) -> float:
        """A factor for this rank's mean loss. With it, the average of all ranks' gradients is the batch's gradient.

        DDP adds up the gradients of W processes, and divides the sum by W. If this rank has n of the batch's N
        samples, its gradient needs the factor n/N instead of 1/W. Therefore the loss gets the factor n/N * W, which
        is exactly 1.0 if all parts are equal.
        """
        return self.batch_size * self.world_size / self.global_batch

    def batches(self, epoch: int, cursor: int = 0) -> Iterator[Tensor]:
        """Yields, for each step from the cursor to the end of an epoch, the indices of this rank's samples."""
        generator = torch.Generator().manual_seed(derive_seed(self.seed, epoch))
        permutation = self.shuffle(generator) if self.shuffle else torch.randperm(self.samples, generator=generator)
        if len(permutation) != self.samples:
            raise ConfigError(
                f"the data set's method `shuffled` returned {len(permutation)} indices for"
                f" {counted(self.samples, 'sample')}: it must return each sample's index once"
            )
        steps = self.steps(cursor)
        for step in range(steps):
            batch = permutation[self.after(cursor, step) : self.after(cursor, step + 1)]
            # This happens only after a resize just before the last step of an epoch.
            if len(batch) < self.world_size:
                batch = batch.repeat(self.world_size)[: self.world_size]
            yield batch[self._part(len(batch))]

    def _part(self, size: int) -> slice:
        """This rank's part of a step of this many samples."""
        return slice(self.rank * size // self.world_size, (self.rank + 1) * size // self.world_size)
