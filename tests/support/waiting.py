"""Waiting for what is asserted: with a deadline that a busy machine moves, and words for when it does not come."""

import os
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

# The usual wait of 60 s ends before the test's 300 s do: its story says more than a stack.
MOST = 4.0
PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.01, 0.1


def patience(seconds: float) -> float:
    """How long to wait now for what takes at most so long on a quiet machine.

    It grows with what waits for a core: to three times where three processes want each core, at most to four times.
    So a deadline says what is promised, and a neighbour's load does not break the promise.
    """
    waiting = os.getloadavg()[0] / (os.cpu_count() or 1)
    return seconds * min(max(waiting, 1.0), MOST)


def wait_for(
    what: str, condition: Callable[[], T], seconds: float = 60.0, *, story: Callable[[], object] = lambda: ""
) -> T:
    """The first true value of a condition, asked again and again; fails with the story of what there was instead.

    seconds  at most, on a quiet machine
    """
    begun = time.monotonic()
    while not (value := condition()):
        waited = time.monotonic() - begun
        assert waited < patience(seconds), f"waited {waited:.0f} s for {what}\n{story()}"
        # What takes long is asked for less often.
        time.sleep(min(PAUSE_SECONDS + waited / 20, LONGEST_PAUSE_SECONDS))
    return value
