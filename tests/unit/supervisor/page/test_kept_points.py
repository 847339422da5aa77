"""The points of a curve that a supervisor keeps in memory: which ones, and how many."""

import json
from itertools import pairwise
from typing import Any

from ddpjob_rank.recording.event import Event
from ddpjob_supervisor.page import kept_points
from ddpjob_supervisor.page.curve import Curve
from ddpjob_supervisor.page.kept_points import MOST, MOST_BYTES, KeptPoints
from ddpjob_supervisor.page.progress import Progress
from hypothesis import given
from hypothesis import strategies as st

WORDS = ("started", "progress", "progress", "progress", "finished")


def records(points: KeptPoints, after: int = 0) -> list[dict[str, Any]]:
    document = json.loads(points.document(after))
    assert document["last"] == points.last
    found: list[dict[str, Any]] = document["records"]
    return found


def a_point(step: int, **values: Any) -> Event:
    return Event("progress", float(step), 1, step, values)


def test_who_knows_some_records_is_told_only_what_is_new() -> None:
    points = KeptPoints()
    assert (records(points), points.last) == ([], 0)
    for step in (1, 2, 3):
        points.add(a_point(step, loss=float("nan")))
    assert [record["step"] for record in records(points, 1)] == [2, 3]
    assert records(points, 3) == records(points, 99) == []
    assert records(points)[0]["loss"] == "NaN"


def test_of_a_start_nothing_is_shown_but_what_a_curve_needs() -> None:
    points = KeptPoints()
    Curve(points.add, {"host": "node-a", "git": {"commit": "abc"}}).note(1, Progress(1), 0.0)
    assert records(points)[0].keys() == {"time", "event", "attempt", "step", "seen", "counted"}


def test_a_long_training_keeps_its_whole_curve_with_fewer_old_points() -> None:
    points = KeptPoints()
    points.add(Event("started", 0.0, 1, 0, {}))
    for step in range(1, 20_001):
        points.add(a_point(step))
    steps = [record["step"] for record in records(points)]
    assert (steps[:1], steps[-1], len(steps) > MOST // 4) == ([0], 20_000, True)
    assert steps == sorted(steps)
    assert max(later - earlier for earlier, later in pairwise(steps)) <= 64


@given(st.lists(st.tuples(st.sampled_from(WORDS), st.integers(0, 400)), max_size=60), st.integers(4, 20))
def test_no_more_is_kept_whatever_comes(events: list[tuple[str, int]], most: int) -> None:
    points = KeptPoints()
    before = kept_points.MOST, kept_points.MOST_BYTES
    kept_points.MOST, kept_points.MOST_BYTES = most, 2000
    try:
        for number, (word, length) in enumerate(events):
            points.add(Event(word, 0.0, 1, number, {"text": "x" * length}))
            document = points.document()
            assert len(records(points)) <= most
            assert len(document) <= 2000 + 100 + most
    finally:
        kept_points.MOST, kept_points.MOST_BYTES = before


def test_the_bounds_are_as_the_page_tells() -> None:
    assert (MOST, MOST_BYTES) == (1000, 1 << 20)
