"""The curves of a job, from its records."""

import math
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest
from ddpjob_operator.view_model import Records, collected
from ddpjob_operator.view_model.curves import MOST_CURVES, MOST_POINTS, Curve, clock_of, curves_of

from tests.unit.view_model.jobs import NOW, moment

START = {"time": moment(0), "event": "started", "attempt": 1, "step": 0}


def records(*entries: dict[str, Any]) -> Records:
    return collected([START, *(START | {"event": "progress"} | entry for entry in entries)])


@pytest.mark.parametrize(
    ("case", "added", "points"),
    [
        ("in order", [(1, 0.5), (2, 0.25)], [(1, 0.5), (2, 0.25)]),
        ("went back by two", [(1, 9), (2, 8), (3, 7), (2, 6)], [(1, 9), (2, 6)]),
        ("went back to the beginning", [(1, 9), (2, 8), (0, 7)], [(0, 7)]),
        ("too large", [(1, 1e30), (2, -1e30), (3, 9e29), (4, -9e29)], [(3, 9e29), (4, -9e29)]),
        ("no number", [(1, math.nan), (2, math.inf), (math.inf, 1), (math.nan, 1)], []),
    ],
)
def test_points_of_a_curve(case: str, added: list[tuple[float, float]], points: list[tuple[float, float]]) -> None:
    curve = Curve()
    for point in added:
        curve.add(*point)
    assert curve.points == points, case


def test_of_many_points_every_second_is_left_out() -> None:
    curve = Curve()
    for step in range(MOST_POINTS):
        curve.add(step, 1)
    assert len(curve.points) == MOST_POINTS
    curve.add(MOST_POINTS, 1)
    assert [step for step, _ in curve.points] == [*range(0, MOST_POINTS, 2), MOST_POINTS]


def test_the_numbers_of_records_by_their_names() -> None:
    found = curves_of(
        records(
            {"step": 1, "loss": 0.5, "samples_per_second": 10, "metrics": {"zeta": 1, "accuracy": 0.1, "text": "x"}},
            {"step": 2, "loss": None, "samples_per_second": 20, "metrics": {"accuracy": 0.2}},
            {"step": 3, "loss": 0.25, "epoch": 1, "samples": 7},
            {"event": "evaluated", "step": 3, "loss": 0.7, "epoch": 1, "samples": 9, "recall": 0.6, "note": "x"},
        )
    )
    assert [(name, curve.points) for name, curve in found.items()] == [
        ("loss", [(1, 0.5), (3, 0.25)]),
        ("evaluated loss", [(3, 0.7)]),
        ("samples/s", [(1, 10), (2, 20)]),
        ("accuracy", [(1, 0.1), (2, 0.2)]),
        ("recall", [(3, 0.6)]),
        ("zeta", [(1, 1)]),
    ]


def test_a_job_has_only_so_many_curves() -> None:
    metrics = {f"metric {number:03}": 1 for number in range(MOST_CURVES + 1)}
    found = curves_of(records({"step": 1, "loss": 1, "samples_per_second": 1, "metrics": metrics}))
    # The curve of the evaluated loss has a place, too, although nothing was evaluated.
    assert [*found] == ["loss", "samples/s", *[*metrics][: MOST_CURVES - 3]]


def test_the_clock_tells_when_each_step_was_finished() -> None:
    steps = records({"step": 1, "time": moment(5)}, {"step": 4, "time": moment(9)})
    assert clock_of(steps, NOW - timedelta(seconds=1)).points == [(1, 6), (4, 10)]


def a_curve(*steps: int) -> Curve:
    curve = Curve()
    for step in steps:
        curve.add(step, 1.0)
    return curve


@pytest.mark.parametrize("last", [1, MOST_POINTS, MOST_POINTS + 1, 1000, 10_001, 12_345])
def test_the_points_of_a_long_run_are_spread_over_all_of_it_and_the_last_one_is_there(last: int) -> None:
    steps = [step for step, _ in a_curve(*range(1, last + 1)).points]
    assert (steps[0], steps[-1]) == (1, last)
    assert min(last, MOST_POINTS // 2) <= len(steps) <= MOST_POINTS
    assert max((after - before for before, after in pairwise(steps)), default=0) <= 4 * last / MOST_POINTS + 1


def test_training_that_goes_back_drops_what_came_after() -> None:
    assert [step for step, _ in a_curve(1, 2, 3, 4, 3, 4).points] == [1, 2, 3, 4]
    long = a_curve(*range(1, 2001), *range(1000, 1005))
    assert [step for step, _ in long.points[-1:]] == [1004]
    assert [step for step, _ in long.points] == sorted({step for step, _ in long.points})
