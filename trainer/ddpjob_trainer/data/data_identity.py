"""Identifies the data of a run. With other data, the position in a checkpoint would refer to other samples."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest

from ddpjob_rank.console import counted

ROUNDING, SMALL = 1e-3, 1e-6
"""Relative and absolute tolerance for numbers of a fingerprint. If these numbers are computed at each start, their
last bits may depend on the number of threads or on the machine."""


@dataclass(frozen=True, slots=True)
class DataIdentity:
    """Properties of a run's data that are known without fetching samples. None or empty means unknown."""

    seed: int | None = None
    """The seed of the order of samples."""
    length: int | None = None
    """The number of samples; also None if each process makes its own batches."""
    fingerprint: tuple[str, ...] = ()
    """The result of `fingerprint`."""

    def differences(self, now: "DataIdentity") -> list[str]:
        """How the present data, `now`, differs from this former data, in words. Unknown fields do not count."""
        found = []
        if None not in (self.seed, now.seed) and self.seed != now.seed:
            found.append(f"--seed was {self.seed}, is {now.seed}")
        if self.length and now.length and self.length != now.length:
            found.append(f"the data set had {counted(self.length, 'sample')}, has {now.length}")
        elif changed := _first_change(self.fingerprint, now.fingerprint):
            found.append(f"the data set's fingerprint had {changed[0]}, has {changed[1]} in its place")
        return found

    def within_epoch(self, samples: int, batch: int) -> bool:
        """Whether, after `samples` samples, an epoch has begun and has at least one step of `batch` samples left."""
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
