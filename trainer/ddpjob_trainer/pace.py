"""The recent pace of a process, from the moments when its steps are finished. Pure: time is an argument."""

import math

WINDOW_SECONDS = 1.0
"""What "recent" means."""


class Pace:
    """The mean time of a step. What is no training is not in it, nor is the first step, which pays for much more."""

    def __init__(self) -> None:
        self.mean = math.nan
        """Seconds per step over the last window of at least a second; while there is none, over what there is."""
        self._since: float | None = None
        self._seconds, self._steps = 0.0, 0.0
        self._window_full = False

    def step(self, steps: float, now: float) -> None:
        """So many more steps are finished; not a positive number where the count begins, or began anew."""
        if self._since is not None and steps > 0:
            self._seconds += now - self._since
            self._steps += steps
            self._look()
        self._since = now

    def pause(self, now: float) -> None:
        """Training stops for something else, perhaps in the middle of a step."""
        if self._since is not None:
            self._seconds += now - self._since

    def resume(self, now: float) -> None:
        """Training goes on."""
        self._since = now

    def _look(self) -> None:
        full = self._seconds >= WINDOW_SECONDS
        if full or not self._window_full:
            self.mean = self._seconds / self._steps
        if full:
            self._seconds, self._steps, self._window_full = 0.0, 0.0, True
