"""What all kinds of trackers have in common. A tracker follows how far training has got in a loader."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any, ClassVar, NamedTuple

from ddpjob_rank.errors import ConfigError

from .beginning import own_preserved
from .index_order import Handed
from .loader_parts import own_generators, set_epoch, set_states

State = dict[str, Any]
"""A position, as plain values."""


class PositionError(ConfigError):
    """The position in the data cannot be saved."""


class BeginAgain(Exception):  # noqa: N818  (not an error)
    """The epoch has to begin again, for the reason in the text. It is raised on all ranks or on none."""


class Ranks(NamedTuple):
    """This rank, and how many there are."""

    rank: int
    size: int

    def own(self, states: list[State], divider: str) -> State:
        """The state of this rank.

        Raises:
            BeginAgain: The number of ranks has changed, and the data was divided by a class of the name `divider`.
        """
        if len(states) == self.size:
            return states[self.rank]
        raise BeginAgain(
            f"the number of ranks has changed from {len(states)} to {self.size}, and {divider} cannot"
            " divide the rest of the epoch anew: use ddpjob.data.DistributedBatchSampler"
        )


class Tracker(ABC):
    """Starts the epochs of a loader, and follows the position in the present epoch."""

    kinds: ClassVar[tuple[str, ...]]
    """The kinds of positions that it can restore. A state has the name of its kind under `kind`."""

    def __init__(self, loader: Any, ranks: Ranks) -> None:
        self.handed = Handed()
        self.unknown: str | None = None
        """Why the position is unknown, and what to do; None if it is known."""
        self._loader = loader
        self._ranks = ranks
        self._resumed = False

    def start(self, epoch: int) -> Iterator[Any]:
        """The batches of a whole epoch."""
        set_epoch(self._loader, epoch)
        self.handed.batches = 0
        with own_preserved(self._loader) if self._starts_workers_again() else nullcontext():
            return iter(self._loader)

    @property
    def last(self) -> bool:
        """Whether no batch of the epoch is left. False if this is unknown."""
        try:
            return bool(self.handed.batches == len(self._loader))
        except TypeError:  # A DataLoader over a data set without a length has no length either.
            return False

    @abstractmethod
    def state(self) -> State:
        """The position in the present epoch."""

    @abstractmethod
    def resume(self, epoch: int, states: list[State]) -> Iterator[Any]:
        """The remaining batches of an epoch. `states` has the positions of the former ranks.

        Raises:
            BeginAgain: The position cannot be restored.
        """

    def go_on(self, state: State) -> None:
        """Restores what later epochs depend on: the random generators that belong to the loader's parts."""
        set_states(own_generators(self._loader), state["generators"])
        self._resumed = True

    def _starts_workers_again(self) -> bool:
        """Whether the next iteration starts workers that would have persisted if training had not been interrupted.

        A DataLoader draws a seed for its workers, but none in later epochs if the workers persist.
        """
        stay = getattr(self._loader, "persistent_workers", False) and getattr(self._loader, "num_workers", 0)
        return bool(stay) and self._resumed and getattr(self._loader, "_iterator", None) is None
