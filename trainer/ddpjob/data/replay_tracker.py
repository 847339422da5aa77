"""Tracks loaders whose position is only the number of batches."""

import time
from collections.abc import Iterator
from typing import Any

from ddpjob_rank.console import counted, say, warn

from ddpjob.random_state import rng_preserved

from .beginning import Beginning, beginning_of, read, written
from .loader_parts import own_generators, set_epoch
from .tracker import BeginAgain, Ranks, State, Tracker

PATIENCE_SECONDS = 5.0
"""How many seconds batches are fetched and discarded before a message says so."""


class ReplayTracker(Tracker):
    """Tracks any loader that can be iterated again.

    At a resumption, the batches that were seen are fetched again and discarded.
    """

    kinds = ("replay",)

    def __init__(self, loader: Any, ranks: Ranks) -> None:
        super().__init__(loader, ranks)
        self.beginning: Beginning | None = None

    def start(self, epoch: int) -> Iterator[Any]:
        """The batches of a whole epoch."""
        self.beginning = beginning_of(own_generators(self._loader))
        return super().start(epoch)

    def state(self) -> State:
        """The number of batches, and the states of the generators before the first batch."""
        return {"kind": "replay", "batches": self.handed.batches} | written(self.beginning, self._loader)

    def resume(self, epoch: int, states: list[State]) -> Iterator[Any]:
        """The remaining batches of an epoch."""
        own = self._ranks.own(states, type(self._loader).__name__)
        set_epoch(self._loader, epoch)
        with rng_preserved():
            self.beginning = read(own)
            self.beginning.put_back(own_generators(self._loader))
            batches: Iterator[Any] = iter(self._loader)
            self._discard(batches, own["batches"], epoch)
        self.handed.batches = own["batches"]
        return batches

    def _discard(self, batches: Iterator[Any], number: int, epoch: int) -> None:
        begun, name, told = time.monotonic(), type(self._loader).__name__, self._ranks.rank != 0
        for done in range(number):
            if not told and (seconds := time.monotonic() - begun) > PATIENCE_SECONDS:
                told = True
                say(
                    f"fetching {counted(number, 'batch')} of epoch {epoch + 1} again, because {name} cannot skip"
                    f" them: this takes about {seconds / max(1, done) * number:.0f} s. A loader with state_dict(),"
                    " such as torchdata's StatefulDataLoader, continues immediately"
                )
            if next(batches, self) is self:
                warn(
                    f"rank {self._ranks.rank} had seen {counted(number, 'batch')} of epoch {epoch + 1}, but its"
                    f" loader ({name}) has only {done} now: it goes on with the next epoch"
                )
                return


class UnknownTracker(Tracker):
    """Yields whole epochs of a loader whose position is unknown."""

    kinds = ("unknown",)

    def __init__(self, loader: Any, ranks: Ranks, reason: str) -> None:
        super().__init__(loader, ranks)
        self.unknown = f"the position in {type(loader).__name__} is unknown, because {reason}"

    def state(self) -> State:
        """Only the kind of the position."""
        return {"kind": "unknown", "generators": {}}

    def resume(self, epoch: int, states: list[State]) -> Iterator[Any]:  # noqa: ARG002
        """Raises BeginAgain."""
        raise BeginAgain(self.unknown)
