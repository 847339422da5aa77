"""The recent pace of a process, computed from the times at which its steps finished. Pure: time is an argument."""

import math

WINDOW_SECONDS = 1.0
"""The mean is taken over at least this much training time."""


class Pace:
    """The mean time of a step. Excludes times without training, and the first step, which takes much longer."""

    def __init__(self) -> None:
        self.mean = math.nan
        """Seconds per step over the last full window or, until a window is full, over all steps so far."""
        self._since: float | None = None
        self._seconds, self._steps = 0.0, 0.0
        self._window_full = False

    def step(self, steps: float, now: float) -> None:
        """Adds `steps` finished steps. If the number is not positive, counting begins, or begins again."""
        if self._since is not None and steps > 0:
            self._seconds += now - self._since
            self._steps += steps
            self._look()
        self._since = now

    def pause(self, now: float) -> None:
        """Records that training pauses for another activity, perhaps in the middle of a step."""
        if self._since is not None:
            self._seconds += now - self._since

    def resume(self, now: float) -> None:
        """Records that training continues."""
        self._since = now

    def _look(self) -> None:
        full = self._seconds >= WINDOW_SECONDS
        if full or not self._window_full:
            self.mean = self._seconds / self._steps
        if full:
            self._seconds, self._steps, self._window_full = 0.0, 0.0, True
