"""Broken samples of a data set: which of them the processes of a run have met."""

import mmap
from collections.abc import Iterable


class Broken:
    """The numbers of a data set's broken samples, as far as a rank and its workers know them.

    Workers are forked from the rank, and share this memory with it: what one has met is known to all.
    """

    def __init__(self, samples: int) -> None:
        self._known = mmap.mmap(-1, max(1, samples))  # A byte each: processes write side by side.

    def add(self, number: int) -> bool:
        """A sample is broken; returns whether that is news."""
        new = not self._known[number]
        self._known[number] = 1
        return new

    def update(self, numbers: Iterable[int]) -> None:
        """Those that other ranks have met are no news any more."""
        for number in numbers:
            self._known[number] = 1

    def numbers(self) -> list[int]:
        """All that are known, in ascending order."""
        found, number = [], self._known.find(b"\1")
        while number >= 0:
            found.append(number)
            number = self._known.find(b"\1", number + 1)
        return found
