"""Waits for what a test asserts, with a deadline that is later on a busy machine, and a message if it is missed."""

import time
from collections.abc import Callable
from typing import TypeVar

import psutil

T = TypeVar("T")

# With this limit, two waits of the usual 60 s end before the test's limit of 600 s, so that their messages are shown
# instead of a stack.
MOST = 4.0
PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.01, 0.1
WINDOW_SECONDS = 5.0


class Idleness:
    """Measures how many cores have been idle recently."""

    def __init__(self) -> None:
        self._older = self._newer = self._now()

    @property
    def cores(self) -> float:
        """The mean number of idle cores over the last five to ten seconds, or since the beginning."""
        now = self._now()
        if now[0] - self._newer[0] >= WINDOW_SECONDS:
            self._older, self._newer = self._newer, now
        seconds = now[0] - self._older[0]
        return (now[1] - self._older[1]) / seconds if seconds > 1 else 1.0

    def _now(self) -> tuple[float, float]:
        return time.monotonic(), psutil.cpu_times().idle


IDLENESS = Idleness()


def patience(seconds: float) -> float:
    """How long to wait now for something that takes at most `seconds` on a quiet machine.

    If a core is idle, no process has to wait for one. Then a program that is late has only itself to blame, even if
    it keeps another core busy. The fewer cores are idle, the longer the wait, up to four times. So a test's deadline
    can be the time that is promised, and the load of other programs does not break the promise.
    """
    return seconds / min(max(IDLENESS.cores, 1 / MOST), 1.0)


def wait_for(
    what: str, condition: Callable[[], T], seconds: float = 60.0, *, story: Callable[[], object] = lambda: ""
) -> T:
    """Waits for a condition's first true value, and returns it.

    Fails with `story()`, a description of what was found.

    seconds  the longest wait on a quiet machine
    """
    begun = time.monotonic()
    while not (value := condition()):
        waited = time.monotonic() - begun
        assert waited < patience(seconds), f"waited {waited:.0f} s for {what}\n{story()}"
        # The longer the wait, the less often the condition is checked.
        time.sleep(min(PAUSE_SECONDS + waited / 20, LONGEST_PAUSE_SECONDS))
    return value
