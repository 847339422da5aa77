"""A run's input: the batches of each step, and how much each process's part of a step counts."""

from collections.abc import Iterable, Iterator, Sized
from dataclasses import dataclass
from itertools import count, islice, tee
from typing import Any, NamedTuple, Protocol

import torch
import torch.distributed as dist
from ddpjob_rank.console import counted
from ddpjob_rank.errors import ConfigError
from ddpjob_rank.world import World
from torch import Tensor

from ddpjob_trainer.group.collectives import all_gather
from ddpjob_trainer.random_state import seed_all, undisturbed

from .batches import Batches, divided
from .copying import ahead, pair
from .data_identity import DataIdentity
from .fingerprint import fingerprint
from .loader import Loader
from .order import Order


class Step(NamedTuple):
    """One step of this process."""

    batches: Batches
    """As many as a step takes; more may follow."""
    weight: float
    """The factor of this process's mean loss that makes the average of all gradients that of the whole step."""
    samples: Tensor | None = None
    """The indices of this process's samples in the data set; None: they have none."""


class Feed(Protocol):
    """Where steps come from. Each process has its own, and all have as many steps."""

    @property
    def global_batch(self) -> int:
        """By how many samples a step of all processes together advances a position."""

    @property
    def batch_size(self) -> int:
        """Samples of this process per step."""

    def data(self) -> DataIdentity:
        """What can be told of the data without reading it."""

    def left(self, samples: int = 0) -> int | None:
        """Steps that are left in an epoch of which so many samples have been seen; None: that will be seen."""

    def first(self) -> tuple[Any, Any]:
        """A batch like those of a step."""

    def steps(self, epoch: int, samples: int, most: int) -> Iterator[Step]:
        """The remaining steps of an epoch of which this many samples have been seen, but no more than `most`."""


@dataclass(frozen=True, slots=True)
class Divided:
    """A data set that is the same in each process: each takes its part of every step."""

    loader: Loader
    order: Order
    parts: int
    """Batches of a step."""

    @property
    def global_batch(self) -> int:
        """Exactly this many."""
        return self.order.global_batch

    @property
    def batch_size(self) -> int:
        """At most one more than another process."""
        return self.order.batch_size

    def data(self) -> DataIdentity:
        """Of the data set."""
        return DataIdentity(self.order.seed, self.order.samples, fingerprint(self.loader.data))

    def left(self, samples: int = 0) -> int:
        """The rest of the epoch in whole steps."""
        return self.order.steps(samples)

    def first(self) -> tuple[Any, Any]:
        """Fetched by this process itself."""
        return self.loader.batch(next(divided(self.order.batches(1), self.parts)))

    def steps(self, epoch: int, samples: int, most: int) -> Iterator[Step]:
        """The samples in their order."""
        number, weight = min(most, self.left(samples)), self.order.weight
        fetched, trained = tee(islice(self.order.batches(epoch, samples), number))
        batches = self.loader.batches(epoch, divided(fetched, self.parts))
        return (Step(batches, weight, indices) for indices in trained)


class Uneven:
    """Batches that each process makes itself; one may have more of them than another.

    A process that has none left goes on with one of its batches, which does not count. So it takes part in every
    exchange, and its weights and its optimizer stay the same as those of the others.

    Raises:
        ConfigError: There is no batch at all, or no second epoch.
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
                f"train_loader returns a {type(loader).__name__}, which is used up after an epoch: return "
                "something that begins again whenever it is iterated"
            )
        self.batch_size = batch_size
        self.global_batch = batch_size * world.world_size
        self._loader = loader
        self._world = world
        self._device = device
        self._seed = seed
        lengths = all_gather(len(loader) if isinstance(loader, Sized) else None, world)
        self._lengths = [length for length in lengths if length is not None]
        """Of all processes."""
        if len(self._lengths) < world.world_size:
            self._lengths = []  # If one process does not know its length, all must ask each other in each step.
        spare = next(self._from(1, 0), None)
        if spare is None:
            raise ConfigError(f"train_loader gives no batch to rank {world.rank}: each needs at least one per epoch")
        self._spare = spare

    def data(self) -> DataIdentity:
        """Nothing but the seed: another number of processes may have other batches."""
        return DataIdentity(self._seed)

    def left(self, samples: int = 0) -> int | None:
        """What is left of the process with the most."""
        return max(0, max(self._lengths) - samples // self.global_batch) if self._lengths else None

    def first(self) -> tuple[Any, Any]:
        """One of this process."""
        return self._spare

    def steps(self, epoch: int, samples: int, most: int) -> Iterator[Step]:
        """Until no process has a batch left."""
        begun = samples // self.global_batch
        batches = ahead(self._from(epoch, begun), self._device)
        for number in range(begun, begun + most):
            batch = next(batches, None)
            having = self._having(number, mine=batch is not None)
            if not having:
                if number == 0:
                    raise ConfigError(
                        f"train_loader gives no process a batch in epoch {epoch}: it must begin again "
                        "whenever it is iterated"
                    )
                return
            weight = 0.0 if batch is None else self._world.world_size / having
            yield Step(iter([self._spare if batch is None else batch]), weight)

    def _having(self, number: int, *, mine: bool) -> int:
        """How many processes have a batch of this number."""
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
        """The epoch's batches without those already seen. What is drawn for one depends only on its number."""
        set_epoch = getattr(getattr(self._loader, "sampler", None), "set_epoch", None)
        if set_epoch:  # A DistributedSampler's.
            set_epoch(epoch)
        batches: Batches | None = None
        for number in count():
            with undisturbed():
                seed_all(self._seed, self._world.rank, epoch, number)
                batches = iter(self._loader) if batches is None else batches
                batch = next(batches, None)
            if batch is None:
                return
            if number >= begun:
                yield pair(batch, self._device)
