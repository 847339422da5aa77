"""The ranks of a job, from its status page, its status and its pods."""

from typing import Any

import pytest
from ddpjob_operator.view_model import RankRow
from ddpjob_operator.view_model.rank_rows import MOST_RANKS, rank_rows, slowest

from tests.unit.view_model.jobs import job_with

STATUS: dict[str, Any] = {"state": "Running", "nodes": 2, "procsPerNode": 2}


def rows(page: Any, **status: Any) -> tuple[RankRow, ...]:
    return rank_rows(job_with(STATUS | status), page)


def ranks(**known: Any) -> list[dict[str, Any]]:
    """Four ranks on two nodes, of which all know the same."""
    return [{"rank": rank, "node": rank // 2, **known} for rank in range(4)]


def test_all_that_a_page_says_of_a_rank() -> None:
    seconds = {"forward": 0.25, "data": 0, "communication": 2.0, "negative": -1, "text": "x", "yes": True}
    one = {
        "rank": 3,
        "node": 1,
        "step": 7,
        "activity": "Saving",
        "stepSeconds": 0.5,
        "seconds": seconds,
        "slowed": "heat\x1b",
        "memoryBytes": 9,
        "transport": "NET/IB\n",
    }
    parts = {"forward": 0.25, "data": 0.0, "communication": 2.0}
    (row,) = rows({"ranks": [one]})
    assert row == RankRow(
        "3", 1, "", "", 7, "Saving", 0.5, parts, None, r"heat\x1b", 9, r"NET/IB\n"
    )  # fmt: skip
    assert row.own_seconds == 0.25


@pytest.mark.parametrize(
    ("case", "one", "names"),
    [
        ("the largest numbers", {"rank": MOST_RANKS, "node": MOST_RANKS}, [str(MOST_RANKS)]),
        ("a rank that is too large", {"rank": MOST_RANKS + 1, "node": 0}, []),
        ("a node that is too large", {"rank": 0, "node": MOST_RANKS + 1}, []),
        ("no rank", {"node": 0}, []),
        ("no node", {"rank": 0}, []),
    ],
)
def test_a_rank_has_a_number_and_a_node(case: str, one: dict[str, Any], names: list[str]) -> None:
    assert [row.ranks for row in rows({"ranks": [one]}, nodes=None)] == names, case


@pytest.mark.parametrize(("seconds", "known"), [(0, 0.0), (1e9, 1e9), (1.1e9, None), (-1, None), (True, None)])
def test_a_time_that_cannot_be_is_unknown(seconds: Any, known: float | None) -> None:
    (row,) = rows({"ranks": [{"rank": 0, "node": 0, "stepSeconds": seconds}]})
    assert row.step_seconds == known


def test_a_rank_has_only_so_many_parts() -> None:
    (row,) = rows({"ranks": [{"rank": 0, "node": 0, "seconds": {f"part {n}": 1 for n in range(17)}}]})
    assert (len(row.parts), row.own_seconds) == (16, 16.0)


BOTH_OF_NODE_0 = [{"node": 0, "rank": rank, "slowdown": 2 + rank} for rank in (1, 0)]
ON_NODE_1 = [{"node": 1, "nodeName": "n", "slowdown": 2.0}]


@pytest.mark.parametrize(
    ("case", "page", "stragglers", "slowdowns"),
    [
        ("none", {"ranks": ranks()}, [], [None, None, None, None]),
        ("the status knows the node", {"ranks": ranks()}, ON_NODE_1, [None, None, 2.0, 2.0]),
        ("the page knows the rank", {"ranks": ranks(), "stragglers": [{"node": 1, "rank": 3, "slowdown": 4}]},
         ON_NODE_1, [None, None, None, 4.0]),
        ("two of a node", {"ranks": ranks(), "stragglers": BOTH_OF_NODE_0}, [], [2.0, 3.0, None, None]),
        ("nodes in place of ranks", {"stragglers": BOTH_OF_NODE_0},
         ON_NODE_1, [3.0, 2.0]),
        ("a rank that is no number", {"ranks": ranks(), "stragglers": [{"node": 0, "rank": "x", "slowdown": 4}]},
         [], [None, None, None, None]),
    ],
)  # fmt: skip
def test_stragglers_are_marked(
    case: str, page: Any, stragglers: list[dict[str, Any]], slowdowns: list[float | None]
) -> None:
    assert [row.slowdown for row in rows(page, stragglers=stragglers)] == slowdowns, case


@pytest.mark.parametrize(
    ("status", "names"),
    [
        ({}, ["0-1", "2-3"]),
        ({"procsPerNode": 1}, ["0", "1"]),
        ({"procsPerNode": None}, ["0", "1"]),
        ({"nodes": None}, []),
    ],
)
def test_without_ranks_each_node_has_a_row(status: dict[str, Any], names: list[str]) -> None:
    found = rows(None, **status)
    assert [(row.ranks, row.node, row.of_node) for row in found] == [(name, n, True) for n, name in enumerate(names)]


@pytest.mark.parametrize(
    ("case", "known", "rank"),
    [
        ("one rank, for which nobody waits", [(None, 1.0)], None),
        ("of the other nothing is known", [(None, 1.0), (None, None)], None),
        ("the longest own part", [(None, 1.0), (None, 2.0), (None, None)], "1"),
        ("the slowest straggler", [(2.0, 9.0), (3.0, None), (None, 99.0)], "1"),
        ("of equal stragglers the longest part", [(2.0, 1.0), (2.0, 3.0)], "1"),
    ],
)
def test_the_slowest_rank(case: str, known: list[tuple[float | None, float | None]], rank: str | None) -> None:
    given = [
        RankRow(str(number), 0, slowdown=slowdown, parts={} if own is None else {"data": own})
        for number, (slowdown, own) in enumerate(known)
    ]
    found = slowest(given)
    assert (found and found.ranks) == rank, case
