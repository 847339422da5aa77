"""Waiting for what is asserted: with a deadline that a busy machine moves, and words for when it does not come."""

import time
from collections.abc import Callable
from typing import TypeVar

import psutil

T = TypeVar("T")

# Two waits of the usual 60 s end before the test's 600 s do: their stories say more than a stack.
MOST = 4.0
PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.01, 0.1
WINDOW_SECONDS = 5.0


class Idleness:
    """How many cores have nothing to do, lately."""

    def __init__(self) -> None:
        self._older = self._newer = self._now()

    @property
    def cores(self) -> float:
        """Over the last five to ten seconds, or since the beginning."""
        now = self._now()
        if now[0] - self._newer[0] >= WINDOW_SECONDS:
            self._older, self._newer = self._newer, now
        seconds = now[0] - self._older[0]
        return (now[1] - self._older[1]) / seconds if seconds > 1 else 1.0

    def _now(self) -> tuple[float, float]:
        return time.monotonic(), psutil.cpu_times().idle


IDLENESS = Idleness()


def patience(seconds: float) -> float:
    """How long to wait now for what takes at most so long on a quiet machine.

    Where a core has nothing to do, nobody has to wait for one: what is late then is late by its own fault, also if it
    keeps another core busy. The less is idle, the longer the wait, up to four times. So a deadline says what is
    promised, and a neighbour's load does not break the promise.
    """
    return seconds / min(max(IDLENESS.cores, 1 / MOST), 1.0)


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
