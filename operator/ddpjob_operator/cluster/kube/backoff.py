"""The wait before a retry."""

import random

FIRST_SECONDS = 0.2
LONGEST_SECONDS = 30.0


def backoff(failures: int, at_least: float | None = None, longest: float = LONGEST_SECONDS) -> float:
    """Returns the seconds to wait after this many failures in a row: `FIRST_SECONDS`, doubled with each failure.

    The wait is at least `at_least`. Up to 50% is added at random, so that requests that failed at the same time are
    not repeated at the same time.
    """
    seconds = min(FIRST_SECONDS * 2.0 ** min(failures - 1, 20), longest)
    return max(seconds, at_least or 0.0) * random.uniform(1.0, 1.5)  # noqa: S311  It only spreads retries.
