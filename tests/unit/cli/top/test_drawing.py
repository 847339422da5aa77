"""How rows and details of jobs are drawn, to the last character."""

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import pytest
from ddpjob_operator.cli.top.drawing import (
    ALL,
    cells,
    columns_for,
    rank_cells,
    sparkline,
    summary,
    time_axis,
    told_incidents,
    tree,
    whom_others_wait_for,
)
from ddpjob_operator.view_model import Branch, Curve, Interruption, JobKey, JobRow, Origin, RankRow, TimeAxis
from ddpjob_operator.view_model.start_tree import StartStep

from tests.unit.view_model.jobs import NOW

KEY = JobKey(Origin.CLUSTER, "team", "digits", "u")


def an_axis(*incidents: tuple[int, float, int | None, int | None]) -> TimeAxis:
    """An axis of 100 seconds with incidents by number, seconds, last step and the step that training resumed from."""
    found = (
        Interruption(number, NOW + timedelta(seconds=at), number + 1, "rank 1: Application", "no", *steps)
        for number, at, *steps in incidents
    )
    return TimeAxis(NOW - timedelta(seconds=100), NOW, tuple(found))


def a_curve(values: Iterable[float]) -> Curve:
    return Curve([*enumerate(values)])


def test_the_cells_of_a_job() -> None:
    known: dict[str, Any] = {
        "ready": "1/2",
        "progress": "30%",
        "why": "for rank 1",
        "eta": "5m",
        "samples_per_second": 1234.5,
        "loss": "0.25",
        "restarts": 2,
        "disruptions": 1,
        "goodput": 0.825,
        "made": NOW - timedelta(seconds=150),
    }
    row = cells(JobRow(KEY, "Running", **known), ALL, NOW)
    assert " | ".join(row) == (
        "team | digits | Running | 1/2 | 30% | 5m | 1,234 | 0.25 | 2+1 | 82% | 2m |  | for rank 1"
    )
    row = cells(JobRow(JobKey(Origin.HERE, "", "digits", "/runs/digits"), "Pending"), ALL, NOW)
    assert row == ("here", "digits", "Pending", "", "", "", "", "", "0", "", "<none>", "", "")


@pytest.mark.parametrize(("width", "count"), [(80, 8), (139, 8), (140, 13)])
def test_a_wide_terminal_has_all_columns(width: int, count: int) -> None:
    assert len(columns_for(width)) == count


@pytest.mark.parametrize(
    ("states", "words"),
    [
        ("", "0 jobs"),
        ("a", "1 job: 1 a"),
        ("babbc", "5 jobs: 3 b, 1 a and 1 c"),
        ("abcdefg", "7 jobs: 1 a, 1 b, 1 c, 1 d, 1 e and 1 f"),
    ],
)
def test_the_most_frequent_states_are_counted(states: str, words: str) -> None:
    assert summary([JobRow(KEY, state) for state in states]) == words


def test_the_bars_of_a_start_are_as_long_as_its_parts() -> None:
    parts = [
        Branch(StartStep.QUEUE, 10.0, over=True),
        Branch(StartStep.CODE, 40.0, over=True),
        Branch(StartStep.RANKS_MET, 5.0, over=False),
        Branch(StartStep.FIRST_STEP, None, over=False),
    ]
    assert [*tree(parts)] == [
        "├─ queue            10 s  ██████",
        "├─ code             40 s  ████████████████████████",
        "├─ ranks met         5 s  ███…",
        "└─ first step   not begun",
    ]
    assert [*tree([Branch(StartStep.QUEUE, 0.0, over=True)])] == ["└─ queue            0 ms"]
    assert [*tree([])] == []


def test_incidents_stand_where_they_happened_and_those_at_one_place_are_a_star() -> None:
    axis = an_axis((1, -100, None, None), (2, -50, 7, 5), (13, -50, None, None), (14, 0, 9, None))
    assert [*time_axis(axis, 23)] == ["├1─────────*─────────4┤", "23:58:20       00:00:00"]
    assert [*told_incidents(axis, NOW)] == [
        "1  100s ago, attempt 2, rank 1: Application: no",
        "2  50s ago, attempt 3, rank 1: Application after step 7, went on from step 5: no",
        "13  50s ago, attempt 14, rank 1: Application: no",
        "14  0s ago, attempt 15, rank 1: Application after step 9: no",
    ]
    silent = TimeAxis(NOW, NOW, (Interruption(1, NOW, 1, "started again", "", 9, None),))
    assert [*told_incidents(silent, NOW)] == ["1  0s ago, attempt 1, started again after step 9"]


@pytest.mark.parametrize(
    ("values", "width", "line"),
    [
        ((8, 6, 4, 2, 1, 1, 3, 5), 40, "█▆▄▂▁▁▃▅ 8 → 5, lowest 1"),
        ((8, 6, 4, 2, 1, 1, 3, 5), 24, "█▆▄▂▁▁▃▅ 8 → 5, lowest 1"),
        ((8, 6, 4, 2, 1, 1, 3, 5), 23, "█▃▁▄ 8 → 5, lowest 1"),
        ((8, 6, 4), 18, "█▁ 8 → 4, lowest 4"),
        ((2, 4), 1, "▁ 2 → 4, lowest 2"),
        ((2,), 40, "▁ 2 → 2, lowest 2"),
    ],
)
def test_a_curve_is_as_wide_as_there_is_room_and_each_place_has_the_mean(
    values: tuple[float, ...], width: int, line: str
) -> None:
    assert sparkline(a_curve(values), width) == line


RANK = RankRow("3", 1, "node-b", "Running", 7, "Saving", 0.5, {"data": 2.0}, 2.5, "heat", 3 << 29, "NET/IB")
NODE = RankRow("0-7", 0, of_node=True, parts={"data": 2.0, "communication": 1.0})


@pytest.mark.parametrize(
    ("row", "line"),
    [
        (RANK, "3 | 1 node-b | Running | 7 | 0.5 s | 2 s | 2.5 x | 1.5 GiB | saving, heat, NET/IB"),
        (RankRow("0-7", 0), "0-7 | 0 |  |  |  |  |  |  | "),
    ],
)
def test_the_cells_of_a_rank(row: RankRow, line: str) -> None:
    assert " | ".join(rank_cells(row)) == line


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (RANK, "rank 3 on node 1 node-b: 2.5 x the usual time"),
        (NODE, "ranks 0-7 on node 0: its own part takes 2 s"),
        (None, ""),
    ],
)
def test_the_slowest_rank_in_words(row: RankRow | None, words: str) -> None:
    assert whom_others_wait_for(row) == words
