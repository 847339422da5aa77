"""Yields the batches of whole epochs and, after a resumption, the remaining batches of an interrupted epoch."""

from collections.abc import Iterable, Iterator
from typing import Any

from ddpjob_rank.console import warn
from ddpjob_rank.errors import ConfigError

from .tracker import BeginAgain, Ranks, State, Tracker
from .trackers import tracker_of


class ResumableLoader:
    """Iterates over any loader, and goes on in the middle of an epoch.

    If the random generators of the process are restored as well, the batches are those that training would have got
    without the interruption, including random augmentations that this process makes (num_workers=0). Workers are
    started again, so their augmentations differ; the indices and their order are the same.
    """

    def __init__(self, loader: Iterable[Any] | None, *, rank: int = 0, size: int = 1) -> None:
        """Wraps this rank's loader; None means that the program iterates over its data itself."""
        self._rank = rank
        self._size = size
        self._tracker: Tracker | None = None if loader is None else tracker_of(loader, Ranks(rank, size))
        self._name = type(loader).__name__
        self._epoch: int | None = None
        self._ended = False
        self._states: list[State] = []
        self._warned = False

    @property
    def unknown(self) -> str | None:
        """Why a resumption begins the epoch again, and what to do about it; None if it continues in the middle."""
        return self._tracker.unknown if self._tracker else "the program iterates over its data itself"

    @property
    def last(self) -> bool:
        """Whether no batch of the present epoch is left. False if this is unknown."""
        return self._tracker is not None and self._tracker.last

    def batches(self, epoch: int) -> Iterator[Any]:
        """Yields the batches of an epoch. In the epoch of a restored state, batches that were seen are left out.

        Calls `set_epoch` of the loader, its data set and its samplers, where they have this method. The caller has to
        restore the generators of the process first. Finding the position leaves the generators unchanged.

        Raises:
            ConfigError: There is no loader, or it has no batch in this epoch.
        """
        if self._tracker is None:
            raise ConfigError("there is no loader: pass one as loader=…")
        states, self._states = self._states, []
        self._epoch, self._ended = epoch, False
        batches = self._rest(epoch, states) if states else None
        whole = batches is None
        handed = self._tracker.handed
        for batch in self._tracker.start(epoch) if batches is None else batches:
            handed.batches += 1
            yield batch
        self._ended = True
        if whole and not handed.batches:
            raise ConfigError(
                f"the loader of rank {self._rank} ({self._name}) has no batch in epoch {epoch + 1}: each rank needs"
                " one in each epoch, and a loader has to start again each time it is iterated"
            )

    def state(self) -> State:
        """This rank's position in the data, as plain values. Call it between two batches, or between two epochs.

        Raises:
            PositionError: The loader's own state has values that are not plain.
        """
        if self._states:  # Nothing was seen since the resumption.
            return {"kind": "former", "epoch": None, "ended": False, "states": self._states}
        if self._tracker is None or self._epoch is None:
            return {"kind": "none", "epoch": self._epoch, "ended": False}
        if self.unknown and not self._warned and self._rank == 0:
            self._warned = True
            warn(
                f"{self.unknown}. Until then, a resumption begins the epoch again instead of continuing in the middle"
            )
        return {"epoch": self._epoch, "ended": self._ended} | self._tracker.state()

    def restore(self, states: list[State]) -> None:
        """Takes the states of all ranks of the saved run, by rank. The number of ranks may have changed."""
        self._states = states[0]["states"] if states and states[0]["kind"] == "former" else states

    def _rest(self, epoch: int, states: list[State]) -> Iterator[Any] | None:
        """The remaining batches of the epoch in which the states were taken; None if all of its batches remain."""
        tracker = self._tracker
        assert tracker is not None
        own = states[self._rank] if len(states) == self._size else None
        known = all(state["kind"] in tracker.kinds for state in states)
        if known and own and (own["epoch"] != epoch or own["ended"]):
            tracker.go_on(own)
        if states[0]["epoch"] != epoch:
            return None
        if own["ended"] if own else all(state["ended"] for state in states):
            return iter(())
        try:
            if not known:
                raise BeginAgain(f"its position was saved for another kind of loader than {self._name}")  # noqa: TRY301
            return tracker.resume(epoch, states)
        except BeginAgain as reason:
            if self._rank == 0:
                warn(f"epoch {epoch + 1} begins again, and the samples seen in it are seen twice: {reason}")
            return None
