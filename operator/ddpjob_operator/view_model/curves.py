"""Curves of a job: a number of each step, such as its loss."""

import math
from dataclasses import dataclass, field

MOST_POINTS = 400
LARGEST = 1e30
"""A curve leaves out larger values, next to which all others would look the same."""


@dataclass
class Curve:
    """A number by step. If there are many steps, some are left out."""

    points: list[tuple[float, float]] = field(default_factory=list)

    def add(self, step: float, value: float) -> None:
        """Adds a point. If training has gone back to an earlier step, the points after that step are dropped."""
        if not (math.isfinite(step) and abs(value) < LARGEST):
            return
        while self.points and self.points[-1][0] >= step:
            self.points.pop()
        if len(self.points) >= MOST_POINTS:
            self.points = self.points[::2]
        self.points.append((step, value))
