"""Provides a run's input: the batches of each step, and the weight of each process's part of the step."""

from collections.abc import Iterable, Iterator, Sized
from dataclasses import dataclass
from itertools import count, islice, tee
from typing import Any, NamedTuple, Protocol

import torch
import torch.distributed as dist
from ddpjob.data.order import Order
from ddpjob.group.collectives import all_gather
from ddpjob.random_state import rng_preserved, seed_all
from ddpjob_rank.console import counted, with_article
from ddpjob_rank.errors import ConfigError
from ddpjob_rank.world import World
from torch import Tensor

from .batches import Batches, divided
from .copying import pair, prefetch_on_gpu
from .data_identity import DataIdentity
from .fingerprint import fingerprint
from .loader import Loader


class Step(NamedTuple):
    """One step of this process."""

    batches: Batches
    """The batches of this step. The iterator may then continue with the batches of later steps."""
    weight: float
    """A factor for this process's mean loss. With it, the average of all processes' gradients is that of the step."""
    samples: Tensor | None = None
    """The indices of this process's samples in the data set; None if the samples have no indices."""


class Feed(Protocol):
    """A source of steps. Each process has a different source, but all sources have the same number of steps."""

    @property
    def global_batch(self) -> int:
        """The number of samples by which a step advances the position, summed over all processes."""

    @property
    def batch_size(self) -> int:
        """Samples of this process per step."""

    def data(self) -> DataIdentity:
        """The properties of the data that are known without fetching samples."""

    def left(self, samples: int = 0) -> int | None:
        """The number of steps left in an epoch after `samples` samples; None if unknown until the epoch ends."""

    def first(self) -> tuple[Any, Any]:
        """A batch like the batches of a step, for the warm-up."""

    def steps(self, epoch: int, samples: int, most: int) -> Iterator[Step]:
        """The remaining steps of an epoch after `samples` samples, but at most `most` steps."""


@dataclass(frozen=True, slots=True)
class Divided:
    """A feed from a data set that is the same in all processes. Each process trains on its own part of every step."""

    loader: Loader
    order: Order
    parts: int
    """Batches per step."""

    @property
    def global_batch(self) -> int:
        """The number of samples in each step, summed over all processes."""
        return self.order.global_batch

    @property
    def batch_size(self) -> int:
        """Samples of this process per step. The numbers of two processes differ by at most one."""
        return self.order.batch_size

    def data(self) -> DataIdentity:
        """The properties of the data set that are known without fetching samples."""
        return DataIdentity(self.order.seed, self.order.samples, fingerprint(self.loader.data))

    def left(self, samples: int = 0) -> int:
        """The number of whole steps left in an epoch after `samples` samples."""
        return self.order.steps(samples)

    def first(self) -> tuple[Any, Any]:
        """The first batch of this process in the first epoch."""
        return self.loader.batch(next(divided(self.order.batches(1), self.parts)))

    def steps(self, epoch: int, samples: int, most: int) -> Iterator[Step]:
        """The remaining steps of an epoch, with this process's samples in their order."""
        number, weight = min(most, self.left(samples)), self.order.weight
        fetched, trained = tee(islice(self.order.batches(epoch, samples), number))
        batches = self.loader.batches(epoch, divided(fetched, self.parts))
        return (Step(batches, weight, indices) for indices in trained)


class Uneven:
    """A feed of batches that each process makes itself. Some processes may have more batches than others.

    A process that has no batch left repeats one of its batches with weight 0. Thus it takes part in every exchange,
    and its weights and its optimizer stay the same as those of the other processes.

    Raises:
        ConfigError: This process has no batch at all, or `loader` cannot be iterated a second time.
    """

    def __init__(
        self,
        loader: Iterable[tuple[Any, Any]],
        world: World,
        device: torch.device,
        *,
        batch_size: int,
        seed: int,
    ) -> None:
        if iter(loader) is loader:
            raise ConfigError(
                f"train_loader returns {with_article(type(loader).__name__)}, which can be iterated only once: return"
                " an object that starts again each time it is iterated"
            )
        self.batch_size = batch_size
        self.global_batch = batch_size * world.world_size
        self._loader = loader
        self._world = world
        self._device = device
        self._seed = seed
        lengths = all_gather(len(loader) if isinstance(loader, Sized) else None, world)
        self._lengths = [length for length in lengths if length is not None]
        """The number of batches of each process, by rank; empty if the number is unknown for any process."""
        if len(self._lengths) < world.world_size:
            self._lengths = []  # If a length is unknown, the processes must count batches together in each step.
        spare = next(self._from(1, 0), None)
        if spare is None:
            raise ConfigError(f"train_loader has no batch for rank {world.rank}: each rank needs one in each epoch")
        self._spare = spare

    def data(self) -> DataIdentity:
        """Identifies the data only by the seed, because the batches may depend on the number of processes."""
        return DataIdentity(self._seed)

    def left(self, samples: int = 0) -> int | None:
        """Steps left for the process with the most batches; None if any process has an unknown number of batches."""
        return max(0, max(self._lengths) - samples // self.global_batch) if self._lengths else None

    def first(self) -> tuple[Any, Any]:
        """The first batch of this process in the first epoch."""
        return self._spare

    def steps(self, epoch: int, samples: int, most: int) -> Iterator[Step]:
        """Yields steps until no process has a batch left, but at most `most` steps."""
        begun = samples // self.global_batch
        batches = prefetch_on_gpu(self._from(epoch, begun), self._device)
        for number in range(begun, begun + most):
            batch = next(batches, None)
            having = self._having(number, mine=batch is not None)
            if not having:
                if number == 0:
                    raise ConfigError(
                        f"train_loader has no batch for any process in epoch {epoch}: it must start again "
                        "each time it is iterated"
                    )
                return
            weight = 0.0 if batch is None else self._world.world_size / having
            yield Step(iter([self._spare if batch is None else batch]), weight)

    def _having(self, number: int, *, mine: bool) -> int:
        """How many processes have a batch with this number. `mine` is true if this process has one."""
        if not self._lengths:
            having = torch.tensor(int(mine))
            if not self._world.alone:
                dist.all_reduce(having)
            return int(having)
        if mine != (number < self._lengths[self._world.rank]):
            raise ConfigError(
                f"train_loader of rank {self._world.rank} says that it has"
                f" {counted(self._lengths[self._world.rank], 'batch')},"
                f" and {'has more' if mine else f'has only {number}'}"
            )
        return sum(number < length for length in self._lengths)

    def _from(self, epoch: int, begun: int) -> Batches:
        """The batches of an epoch, without the first `begun`.

        Random numbers that are drawn for a batch depend only on seed, rank, epoch and the number of the batch.
        """
        set_epoch = getattr(getattr(self._loader, "sampler", None), "set_epoch", None)
        if set_epoch:  # The sampler is a DistributedSampler.
            set_epoch(epoch)
        batches: Batches | None = None
        for number in count():
            with rng_preserved():
                seed_all(self._seed, self._world.rank, epoch, number)
                batches = iter(self._loader) if batches is None else batches
                batch = next(batches, None)
            if batch is None:
                return
            if number >= begun:
                yield pair(batch, self._device)
