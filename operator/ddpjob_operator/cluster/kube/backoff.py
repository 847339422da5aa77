"""How long to wait before trying again."""

import random

FIRST_SECONDS = 0.2
LONGEST_SECONDS = 30.0


def backoff(failures: int, at_least: float | None = None, longest: float = LONGEST_SECONDS) -> float:
    """Seconds after this many failures in a row: more after each, never less than the server wants.

    Up to half as much is added at random: what failed together is not tried again together.
    """
    seconds = min(FIRST_SECONDS * 2.0 ** min(failures - 1, 20), longest)
    return max(seconds, at_least or 0.0) * random.uniform(1.0, 1.5)  # noqa: S311  It only spreads retries.
