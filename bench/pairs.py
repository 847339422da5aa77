"""Compares two measurements by the ratio of each pair. The two take turns, so that other load affects both."""

import random
import statistics
from collections.abc import Callable, Sequence
from typing import TypeVar

from bench.table import Row

T = TypeVar("T")
RESAMPLES = 10_000
SHOWN = 30
"""About as many pairs are printed."""
CONFIDENCE = 0.95


def in_turn(pairs: int, ours: Callable[[], T], theirs: Callable[[], T]) -> list[tuple[T, T]]:
    """Measures `ours` and `theirs` in turn, each `pairs` times. They alternate in coming first."""
    found = []
    for pair in range(pairs):
        if pair % 2:
            mine = ours()
            other = theirs()
        else:
            other = theirs()
            mine = ours()
        if (pair + 1) % max(1, pairs // SHOWN) == 0:
            print(f"  pair {pair + 1} of {pairs}: {mine} beside {other}", flush=True)
        found.append((mine, other))
    return found


def interval(values: Sequence[float]) -> tuple[float, float]:
    """A bootstrap confidence interval of the median (percentile method)."""
    draw = random.Random(0)  # The seed is fixed, so that the same data give the same interval.
    medians = sorted(statistics.median(draw.choices(values, k=len(values))) for _ in range(RESAMPLES))
    tail = (1 - CONFIDENCE) / 2
    return medians[int(tail * RESAMPLES)], medians[int((1 - tail) * RESAMPLES) - 1]


def ratio(
    what: str,
    pairs: Sequence[tuple[float, float]],
    unit: str,
    *,
    least: float | None = None,
    most: float | None = None,
    goal: float | None = None,
) -> Row:
    """A row with the median ratio of each pair's first value to its second, and with its confidence interval.

    The target, `least` or `most`, is missed if the whole interval lies beyond it. `goal` is a more ambitious value,
    which is shown but has no verdict.
    """
    ratios = [mine / other for mine, other in pairs]
    low, high = interval(ratios)
    ours, theirs = (statistics.median(pair[side] for pair in pairs) for side in (0, 1))
    found = (
        f"{ours:.3g} beside {theirs:.3g} {unit}, ratio {statistics.median(ratios):.3f}"
        f" ({low:.3f} to {high:.3f} by {len(pairs)} pairs)"
    )
    beyond = "" if goal is None else f", goal {goal:g}"
    if least is not None:
        return Row(what, found, f"ratio ≥ {least:.2f}{beyond}", met=high >= least)
    if most is not None:
        return Row(what, found, f"ratio ≤ {most:.2f}{beyond}", met=low <= most)
    return Row(what, found)
