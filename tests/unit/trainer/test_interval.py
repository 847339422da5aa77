"""How often to save if nobody says so."""

import pytest
from ddpjob.checkpoint.interval import best_interval, expected_time_to_failure

HOUR = 3600.0


@pytest.mark.parametrize(
    ("time_to_failure", "cost", "writing", "interval"),
    [
        (HOUR, 2, 0, 120),
        (8 * HOUR, 0.1, 0, 75.9),
        (8 * HOUR, None, 0, 10),
        (60, 0.01, 0, 1.1),
        (60, 0, 0, 1),
        (1000 * HOUR, 30, 0, 3600),
        (HOUR, 0.5, 29, 60),
        (HOUR, 0.5, 90, 180),
        (HOUR, 0.5, 5000, 10000),
    ],
    ids=[
        "the root of 2 * 3600 s * 2 s",
        "a save that costs little",
        "no save yet: soon",
        "a failure a minute",
        "a save that costs nothing: not all the time",
        "at least once an hour",
        "half of it is longer than writing",
        "half of it is shorter than writing",
        "writing takes longer than an hour",
    ],
)
def test_the_interval_is_youngs_within_bounds(
    time_to_failure: float, cost: float | None, writing: float, interval: float
) -> None:
    assert best_interval(time_to_failure, cost, writing) == pytest.approx(interval, abs=0.1)


@pytest.mark.parametrize(("nodes", "hours"), [(1, 23.4), (2, 22.9), (128, 5.9), (2048, 0.48)])
def test_as_long_as_nothing_is_known_more_nodes_fail_more_often(nodes: int, hours: float) -> None:
    assert expected_time_to_failure(nodes) / HOUR == pytest.approx(hours, rel=0.01)


@pytest.mark.parametrize(("cost", "time_to_failure"), [(0.02, 8 * HOUR), (1, HOUR), (20, 4 * HOUR)])
def test_no_other_interval_loses_less(cost: float, time_to_failure: float) -> None:
    def lost(interval: float) -> float:
        return cost / interval + interval / 2 / time_to_failure

    best = best_interval(time_to_failure, cost, 0)
    assert lost(best) < min(lost(best * 0.9), lost(best * 1.1))
