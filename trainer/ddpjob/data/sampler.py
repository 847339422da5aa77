"""A batch sampler for DDP whose position in an epoch is a number of samples, whatever the number of ranks."""

from collections.abc import Iterator, Sized
from typing import Any

import torch
import torch.distributed as dist
from ddpjob_rank.console import counted
from ddpjob_rank.errors import ConfigError
from torch.utils.data import Sampler

from .order import Order, Shuffle, Shuffled


class DistributedBatchSampler(Sampler[list[int]]):
    """Divides each global batch among the ranks, so that each sample is seen exactly once in each epoch.

    Unlike DistributedSampler, it repeats no sample, and an interrupted epoch goes on with any number of ranks.

        from ddpjob.data import DistributedBatchSampler

        sampler = DistributedBatchSampler(dataset, global_batch_size=256)
        loader = DataLoader(dataset, batch_sampler=sampler)

    The ranks' parts of a batch differ by at most one sample. All ranks have the same number of batches.
    """

    def __init__(
        self,
        dataset: Sized,
        global_batch_size: int,
        num_replicas: int | None = None,
        rank: int | None = None,
        *,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
    ) -> None:
        """Divides a data set.

        Args:
            dataset: The data set, which has a length. If it has a method `shuffled`, that method chooses the order.
            global_batch_size: The number of samples per step, summed over all ranks; at least one for each rank.
            num_replicas: The number of ranks; by default, that of the default process group, or 1 without a group.
            rank: This rank's number; by default, its number in the default process group, or 0 without a group.
            shuffle: Whether each epoch has its own random order. Otherwise samples come in the data set's order.
            seed: The seed of the order, which must be the same on all ranks.
            drop_last: Whether samples that do not fill a last global batch are left out; with `shuffle`, these are
                different samples in each epoch. If false, the last batch is smaller. If fewer samples would be left
                for it than there are ranks, the batch before it gets them too. After a resize just before the last
                batch, that batch may have fewer samples than ranks: then some are repeated, because each rank needs
                one.

        Raises:
            ConfigError: The global batch has fewer samples than there are ranks, or more than the data set.
        """
        grouped = dist.is_available() and dist.is_initialized()
        size = num_replicas if num_replicas is not None else dist.get_world_size() if grouped else 1
        own = rank if rank is not None else dist.get_rank() if grouped else 0
        self.dataset, self.seed = dataset, seed
        self.order = Order(len(dataset), global_batch_size, own, size, seed, _shuffle(dataset, shuffle), drop_last)
        self.epoch = self._start = self._drawn = 0
        self._begun = self._ended = False

    def __len__(self) -> int:
        """The number of batches of a whole epoch."""
        return self.order.steps()

    def __iter__(self) -> Iterator[list[int]]:
        """Yields the indices of this rank's samples, batch by batch, up to the end of the epoch.

        The first iteration begins at the position of `load_state_dict`. If `set_epoch` is not called between two
        iterations, and the first was complete, the second is the next epoch.
        """
        if self._begun:
            self._go_to(self.epoch + self._ended, 0)
        self._begun = True
        for indices in self.order.batches(self.epoch, self._start):
            self._drawn += 1
            yield indices.tolist()
        self._ended = True

    def set_epoch(self, epoch: int) -> None:
        """Sets the `epoch` of the next iteration, as DistributedSampler does.

            for epoch in range(10):
                sampler.set_epoch(epoch)

        If a loaded state is of this epoch, its position is kept. `Training` calls this method itself.
        """
        if epoch != self.epoch or self._begun:
            self._go_to(epoch, 0)

    def state_dict(self, batches: int | None = None) -> dict[str, int]:
        """The position in the epoch, which is the same on all ranks. `Training` saves and restores it itself.

            position = sampler.state_dict(batches=2)
            sampler.load_state_dict(position)

        Args:
            batches: How many batches of the present iteration training has seen. A DataLoader with workers draws
                indices ahead: without this number, all drawn batches count as seen.
        """
        seen = self.order.after(self._start, self._drawn if batches is None else batches)
        return {"epoch": self.epoch, "samples": seen, "of": self.order.samples, "seed": self.seed}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Begins the next iteration at the position in `state_dict`, which was saved with any number of ranks.

        Raises:
            ConfigError: The position is of another order: the seed or the length of the data set differs.
        """
        of, seed = state_dict["of"], state_dict["seed"]
        if (of, seed) != (self.order.samples, self.seed):
            raise ConfigError(
                f"the position in the data is that of {counted(of, 'sample')} with seed {seed}, but the data set has"
                f" {counted(self.order.samples, 'sample')}, and the sampler has the seed {self.seed}: use the same"
                " data set and seed"
            )
        self._go_to(state_dict["epoch"], state_dict["samples"])

    def _go_to(self, epoch: int, samples: int) -> None:
        self.epoch, self._start = epoch, samples
        self._drawn = 0  # Batches of the present iteration. Training may have seen only some of them.
        self._begun = self._ended = False


def _shuffle(dataset: Sized, shuffle: bool) -> Shuffle | None:  # noqa: FBT001  (as in DistributedSampler)
    """How the order of a data set is chosen; None for a uniformly random one."""
    if not shuffle:
        return lambda _: torch.arange(len(dataset))
    return dataset.shuffled if isinstance(dataset, Shuffled) else None
