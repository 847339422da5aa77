"""Curves of a job: a number of each step, such as its loss."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime

from ddpjob_operator.text import one_line

from .records import Records

NO_METRICS = frozenset({"step", "attempt", "epoch", "samples", "loss"})
"""Numbers of an evaluation that are no metrics of the program."""
MOST_CURVES = 64
LONGEST_NAME = 64

MOST_POINTS = 400
LARGEST = 1e30
"""A curve leaves out larger values, next to which all others would look the same."""


@dataclass
class Curve:
    """A number by step. If there are many steps, only every second, fourth, … is kept, and the last one."""

    points: list[tuple[float, float]] = field(default_factory=list)
    _every: int = field(default=1, repr=False, compare=False)
    _passed: int = field(default=0, repr=False, compare=False)
    """How many points have come since the last but one that is kept."""

    def add(self, step: float, value: float) -> None:
        """Adds a point. If training has gone back to an earlier step, the points after that step are dropped."""
        if not (math.isfinite(step) and abs(value) < LARGEST):
            return
        while self.points and self.points[-1][0] >= step:
            self.points.pop()
        if self._passed < self._every and len(self.points) > 1:
            self.points.pop()  # It was there only as the last one.
        else:
            self._passed = 0
        self._passed += 1
        self.points.append((step, value))
        if len(self.points) > MOST_POINTS:
            self.points = self.points[::2]
            self._every *= 2


def metrics_of(recorded: Records) -> dict[str, list[tuple[float, float]]]:
    """The program's own metrics: by name, their values with the steps at which they were measured."""
    found: dict[str, list[tuple[float, float]]] = {}
    for entry in recorded.of("evaluated"):
        for name in entry.values.keys() - NO_METRICS:
            if (value := entry.number(name)) is not None:
                found.setdefault(name, []).append((entry.step, value))
    for entry in recorded.of("progress"):
        for name, value in entry.numbers("metrics").items():
            found.setdefault(name, []).append((entry.step, value))
    return {name: found[name] for name in sorted(found)}


def curves_of(recorded: Records, printed: Records | None = None) -> dict[str, Curve]:
    """The curves of a job, by name: the loss in training and in evaluation, the throughput, and its metrics.

    A curve that the records of its training do not have comes from those of its log, if these are given.
    """
    return (_curves_in(printed) if printed else {}) | _curves_in(recorded)


def _curves_in(recorded: Records) -> dict[str, Curve]:
    progress, evaluated = recorded.of("progress"), recorded.of("evaluated")
    given: dict[str, Iterable[tuple[float, float | None]]] = {
        "loss": [(entry.step, entry.number("loss")) for entry in progress],
        "evaluated loss": [(entry.step, entry.number("loss")) for entry in evaluated],
        "samples/s": [(entry.step, entry.number("samples_per_second")) for entry in progress],
        **metrics_of(recorded),
    }
    curves = {_named(name): _curve(points) for name, points in [*given.items()][:MOST_CURVES]}
    return {name: curve for name, curve in curves.items() if curve.points}


def _named(name: str) -> str:
    """The name of a curve, which a program has chosen, as one short line."""
    return one_line(name[:LONGEST_NAME])


def _curve(points: Iterable[tuple[float, float | None]]) -> Curve:
    curve = Curve()
    for step, value in points:
        if value is not None:
            curve.add(step, value)
    return curve


def clock_of(recorded: Records, began: datetime) -> Curve:
    """By step, in how many seconds after `began` it was finished, so that curves can be drawn by time."""
    return _curve((entry.step, (entry.time - began).total_seconds()) for entry in recorded.of("progress"))
