"""The recent pace of a process, from the moments when its steps are finished. Pure: time is an argument."""

import math

WINDOW_SECONDS = 1.0
"""How far back the recent pace reaches."""


class Pace:
    """The mean time of a step. It excludes what is not training, and the first step, which takes much longer."""

    def __init__(self) -> None:
        self.mean = math.nan
        """Seconds per step over the last window of at least a second; until there is one, over what there is."""
        self._since: float | None = None
        self._seconds, self._steps = 0.0, 0.0
        self._window_full = False

    def step(self, steps: float, now: float) -> None:
        """This many more steps are finished; not positive if the count begins, or began again."""
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
