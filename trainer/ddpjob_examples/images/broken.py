"""The broken samples that the processes of a run have found in a data set."""

import mmap
from collections.abc import Iterable


class Broken:
    """The indices of a data set's broken samples, as far as a rank and its workers have found them.

    Workers are forked from the rank and share this memory with it, so all of them can read what one of them adds.
    """

    def __init__(self, samples: int) -> None:
        # One byte per sample, so that processes do not overwrite each other's marks.
        self._known = mmap.mmap(-1, max(1, samples))

    def add(self, number: int) -> bool:
        """Marks a sample as broken. Returns True if it was not marked before."""
        new = not self._known[number]
        self._known[number] = 1
        return new

    def update(self, numbers: Iterable[int]) -> None:
        """Marks samples that other ranks have found."""
        for number in numbers:
            self._known[number] = 1

    def numbers(self) -> list[int]:
        """The indices of all marked samples, in ascending order."""
        found, number = [], self._known.find(b"\1")
        while number >= 0:
            found.append(number)
            number = self._known.find(b"\1", number + 1)
        return found
