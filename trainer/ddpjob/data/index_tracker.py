"""Tracks DataLoaders over map-style data sets, in which each sample has an index."""

from collections.abc import Iterator
from operator import itemgetter
from typing import Any

from ddpjob_rank.console import counted, say, warn
from ddpjob_rank.errors import ConfigError
from torch.utils.data import DataLoader

from ddpjob.random_state import rng_preserved

from .beginning import Beginning, beginning_of, own_preserved, read, written
from .index_order import FollowedSampler, Seen, after, distributed, divided
from .loader_parts import Generators, own_generators, set_epoch, states_of
from .replay_tracker import ReplayTracker
from .sampler import DistributedBatchSampler
from .tracker import BeginAgain, Ranks, State, Tracker


class SamplerTracker(Tracker):
    """Tracks a DataLoader with a DistributedBatchSampler, whose position is the same for any number of ranks."""

    kinds = ("samples",)

    @property
    def _sampler(self) -> DistributedBatchSampler:
        sampler: DistributedBatchSampler = self._loader.batch_sampler
        return sampler

    @property
    def last(self) -> bool:
        """Whether no batch of the epoch is left."""
        return not self._sampler.order.steps(self._sampler.state_dict(self.handed.batches)["samples"])

    def state(self) -> State:
        """The number of samples that all ranks have seen, not counting those that workers fetch ahead."""
        position = self._sampler.state_dict(self.handed.batches)
        return {"kind": "samples", "position": position, "generators": states_of(own_generators(self._loader))}

    def resume(self, epoch: int, states: list[State]) -> Iterator[Any]:
        """The remaining batches of an epoch."""
        set_epoch(self._loader, epoch)
        self.handed.batches = 0  # From here on, only the remaining batches are counted.
        try:
            self._sampler.load_state_dict(min((state["position"] for state in states), key=itemgetter("samples")))
        except ConfigError as error:
            raise BeginAgain(str(error)) from error
        if len(states) == self._ranks.size:
            self.go_on(states[self._ranks.rank])
        with own_preserved(self._loader):  # The former process drew the loader's seed when the epoch began.
            return iter(self._loader)


class IndexTracker(Tracker):
    """Tracks any other DataLoader by the indices that its sampler yields.

    At a resumption, the sampler draws the indices of the epoch again, with the generators as they were when the epoch
    began. The indices that were seen are skipped, and their samples are not fetched.
    """

    kinds = ("indices", "replay")

    def __init__(self, loader: Any, inner: DataLoader[Any], ranks: Ranks) -> None:
        """`inner` is the DataLoader that draws indices: `loader`, or the one in a loader of Accelerate.

        The batches come from a copy with another sampler, because a DataLoader does not let its sampler be changed.
        """
        self._original, self._inner = loader, inner
        self._copy: Any = object.__new__(type(inner))
        vars(self._copy)["_iterator"] = None
        super().__init__(self._copy if loader is inner else object.__new__(type(loader)), ranks)
        self._name = "sampler" if inner.batch_sampler is None else "batch_sampler"
        self._sampler = FollowedSampler(getattr(inner, self._name), self.handed)
        self._replay = ReplayTracker(self._loader, ranks)
        """A fallback, for a subclass of DataLoader that does not use its sampler in each epoch."""
        self._replay.handed = self.handed
        self._copy_loader()

    def start(self, epoch: int) -> Iterator[Any]:
        """The batches of a whole epoch."""
        generators = self._prepare(epoch)
        before = self._replay.beginning = beginning_of(generators)
        self._sampler.begin(generators, undo=before if self._starts_workers_again() else None)
        return iter(self._loader)

    def state(self) -> State:
        """Which of the sampler's indices were seen, and the generators' states before the first index was drawn."""
        seen = self._sampler.position()
        if seen is None:
            return self._replay.state()
        # A DistributedSampler draws from a generator that it seeds itself.
        beginning = None if distributed(self._sampler.sampler) else self._sampler.beginning
        return {"kind": "indices", "seen": tuple(seen), "ahead": self._sampler.ahead} | written(
            beginning, self._loader
        )

    def resume(self, epoch: int, states: list[State]) -> Iterator[Any]:
        """The remaining batches of an epoch."""
        generators = self._prepare(epoch)
        beginning: Beginning | None = None
        if states[0]["kind"] == "replay":
            self._sampler.begin(generators)
            return self._replay.resume(epoch, states)
        if distributed(self._sampler.sampler):
            rest, seen = self._divide(epoch, states)
        else:
            rest, seen, beginning = self._leave_out(epoch, states, generators)
        self._sampler.begin(generators, rest, seen, undo=beginning_of(generators))
        self._sampler.beginning = beginning
        with rng_preserved():  # As above.
            return iter(self._loader)

    def _divide(self, epoch: int, states: list[State]) -> tuple[Iterator[Any], Seen]:
        """This rank's part of a DistributedSampler's remaining indices, and what this rank has seen of the epoch."""
        each = [Seen(*state["seen"]) for state in states]
        rest, seen, repeated, same = divided(self._sampler.sampler, each)
        if not same:
            raise BeginAgain("DistributedSampler yields another order than before: its data or its seed has changed")
        if len(states) == self._ranks.size:
            self.go_on(states[self._ranks.rank])
        if repeated and self._ranks.rank == 0:
            say(
                f"epoch {epoch + 1} goes on with {seen.replicas} ranks instead of {each[0].replicas}:"
                f" {counted(repeated, 'sample')} will be seen twice, so that all ranks have equally many"
            )
        return rest, seen

    def _leave_out(
        self, epoch: int, states: list[State], generators: Generators
    ) -> tuple[Iterator[Any], Seen, Beginning]:
        """Skips the indices that this rank has seen.

        Returns the remaining indices, the part of the epoch that was seen, and the beginning of the epoch.
        """
        sampler = self._sampler.sampler
        own = self._ranks.own(states, type(getattr(sampler, "sampler", sampler)).__name__)
        seen, beginning = Seen(*own["seen"]), read(own)
        with rng_preserved():
            beginning.put_back(generators)
            rest, same = after(sampler, seen)
        if not own["ahead"]:  # Otherwise the sampler's own generators have to repeat what was drawn ahead.
            self.go_on(own)
        if not same:
            warn(
                f"rank {self._ranks.rank} goes on in epoch {epoch + 1} with another order of samples, so some may be"
                f" seen twice or not at all: {type(sampler).__name__} yields other indices than before. Either the"
                " data has changed, or other code draws from the sampler's generator, too"
            )
        return rest, seen, beginning

    def _prepare(self, epoch: int) -> Generators:
        """Prepares the copy for an epoch. Returns the generators that belong to its parts."""
        self._copy_loader()
        set_epoch(self._loader, epoch)
        return own_generators(self._loader)

    def _copy_loader(self) -> None:
        """Updates the copy, except for its sampler and its workers, which may persist for all epochs."""
        kept = {"_iterator": vars(self._copy)["_iterator"], self._name: self._sampler}
        vars(self._copy).update(vars(self._inner), **kept)
        if self._loader is not self._copy:
            vars(self._loader).update(vars(self._original), base_dataloader=self._copy)
        self._sampler.sampler = getattr(self._inner, self._name)
