"""Chooses how the position in a loader is tracked."""

from collections.abc import Iterable, Iterator
from typing import Any

from ddpjob_rank.errors import ConfigError
from torch.utils.data import DataLoader, IterableDataset

from ddpjob.group import values
from ddpjob.random_state import rng_preserved

from .index_tracker import IndexTracker, SamplerTracker
from .loader_parts import set_epoch
from .replay_tracker import ReplayTracker, UnknownTracker
from .sampler import DistributedBatchSampler
from .tracker import BeginAgain, PositionError, Ranks, State, Tracker


def tracker_of(loader: Iterable[Any], ranks: Ranks) -> Tracker:
    """The tracker for a loader."""
    inner = getattr(loader, "__dict__", {}).get("base_dataloader", loader)  # Accelerate's loaders have one.
    if _stateful(inner):  # Accelerate's own loaders always have these methods, so the loader inside is asked.
        return StatefulTracker(loader, loader, ranks)
    if isinstance(inner, DataLoader):
        return _of_data_loader(loader, inner, ranks)
    if isinstance(loader, Iterator):
        reason = "it can be iterated only once: use an object that starts again each time, such as a DataLoader"
        return UnknownTracker(loader, ranks, reason)
    return ReplayTracker(loader, ranks)


def _of_data_loader(loader: Any, inner: DataLoader[Any], ranks: Ranks) -> Tracker:
    if inner.num_workers and not getattr(inner, "in_order", True):
        return UnknownTracker(loader, ranks, "in_order=False returns batches as they arrive: use in_order=True")
    if isinstance(inner.dataset, IterableDataset):
        # Workers have copies of the data set, and only torchdata's StatefulDataLoader gets their states.
        if inner is loader and not inner.num_workers and _stateful(inner.dataset):
            return StatefulTracker(loader, inner.dataset, ranks)
        return ReplayTracker(loader, ranks)
    if inner is loader and isinstance(inner.batch_sampler, DistributedBatchSampler):
        return SamplerTracker(inner, ranks)
    # For Accelerate's DataLoaderDispatcher, which has `split_batches`, only rank 0 draws indices.
    return ReplayTracker(loader, ranks) if hasattr(loader, "split_batches") else IndexTracker(loader, inner, ranks)


class StatefulTracker(Tracker):
    """Tracks a loader, or a data set, that has `state_dict` and `load_state_dict`."""

    kinds = ("state",)

    def __init__(self, loader: Any, holder: Any, ranks: Ranks) -> None:
        """`holder` is the loader or its data set: whichever has the state."""
        super().__init__(loader, ranks)
        self._holder = holder
        self._batches: Iterator[Any] = iter(())

    def start(self, epoch: int) -> Iterator[Any]:
        """The batches of a whole epoch."""
        self._batches = super().start(epoch)
        return self._batches

    def state(self) -> State:
        """The state of the loader or data set.

        Raises:
            PositionError: The state has values that could not be read back without running code.
        """
        state = self._holder.state_dict()
        try:
            values.encode(state)
        except TypeError as error:
            raise PositionError(
                f"state_dict() of {type(self._holder).__name__} cannot be saved: {error}: it may contain only"
                " tensors, numpy arrays, numbers, strings, bytes, and lists, tuples and dicts of these"
            ) from error
        position = {"kind": "state", "of": type(self._holder).__name__, "state": state}
        # A data set that has ended may have begun again, although the loader still has the last, smaller batch.
        fetcher = getattr(self._batches, "_dataset_fetcher", None)
        return position | ({"ended": True} if getattr(fetcher, "ended", False) else {})

    def resume(self, epoch: int, states: list[State]) -> Iterator[Any]:
        """The remaining batches of an epoch."""
        name = type(self._holder).__name__
        own = self._ranks.own(states, name)
        if own["of"] != name:
            raise BeginAgain(f"its position was saved for {own['of']}, and cannot be restored for {name}")
        set_epoch(self._loader, epoch)
        with rng_preserved():  # The former process drew the loader's seed when the epoch began.
            self._load(own)
            self._batches = iter(self._loader)
        return self._batches

    def go_on(self, state: State) -> None:
        """Makes the loader begin its next epoch after a complete one. A data set does that by itself."""
        if state["ended"] and not isinstance(self._holder, IterableDataset):
            with rng_preserved():
                self._load(state)
                # Makes StatefulDataLoader create the iterator of the former epoch now, before the next epoch is set.
                self._holder.state_dict()

    def _load(self, own: State) -> None:
        try:
            self._holder.load_state_dict(own["state"])
        except (AssertionError, AttributeError, KeyError, TypeError, ValueError) as error:
            raise ConfigError(
                f"load_state_dict() of {type(self._holder).__name__} refused its position in the checkpoint"
                f" ({type(error).__name__}: {error}): use the data and the num_workers with which it was saved"
            ) from error


def _stateful(holder: object) -> bool:
    return all(callable(getattr(type(holder), name, None)) for name in ("state_dict", "load_state_dict"))
