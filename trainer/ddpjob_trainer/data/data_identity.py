"""Which data a run trains on: with other data, a position in an epoch means other samples."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest

from ddpjob_rank.console import counted

ROUNDING, SMALL = 1e-3, 1e-6
"""Numbers may be computed at each start: with other threads, or on another machine, their last bits are others."""


@dataclass(frozen=True, slots=True)
class DataIdentity:
    """What can be told of a run's data without reading it. None, or nothing: it is not known."""

    seed: int | None = None
    """Determines the order."""
    length: int | None = None
    """Samples; None also where each process makes its own batches."""
    fingerprint: tuple[str, ...] = ()
    """Words, as `fingerprint` gives them."""

    def differences(self, now: "DataIdentity") -> list[str]:
        """How another one differs from this former one, in words; what one of them does not know is no difference."""
        told = []
        if None not in (self.seed, now.seed) and self.seed != now.seed:
            told.append(f"--seed was {self.seed}, is {now.seed}")
        if self.length and now.length and self.length != now.length:
            told.append(f"the data set had {counted(self.length, 'sample')}, has {now.length}")
        elif changed := _first_change(self.fingerprint, now.fingerprint):
            told.append(f"the data set's fingerprint had {changed[0]}, has {changed[1]} in its place")
        return told

    def within_epoch(self, samples: int, batch: int) -> bool:
        """Whether a step of so many samples is left of an epoch of which this many have been seen."""
        return self.length is not None and 0 < samples <= self.length - batch


UNKNOWN = DataIdentity()


def _first_change(one: Sequence[str], other: Sequence[str]) -> tuple[str, str] | None:
    pairs = zip_longest(one, other, fillvalue="nothing") if one and other else ()
    return next((pair for pair in pairs if not _close(*pair)), None)


def _close(one: str, other: str) -> bool:
    try:
        return one == other or math.isclose(float(one), float(other), rel_tol=ROUNDING, abs_tol=SMALL)
    except ValueError:
        return False
