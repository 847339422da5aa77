"""What a screen of one job shows: its ranks, its start, its incidents and its curves."""

from datetime import timedelta
from typing import Any

import pytest
from ddpjob_operator.view_model import (
    Around,
    Branch,
    JobDetail,
    JobKey,
    Origin,
    PodSeen,
    collected,
    job_detail,
)

from tests.unit.view_model.jobs import NOW, condition, job_with, moment

KEY = JobKey(Origin.CLUSTER, "team", "digits", "u")
RUNNING: dict[str, Any] = {"state": "Running", "attempt": 1, "nodes": 2, "procsPerNode": 1, "startTime": moment(-90)}


def detail(status: dict[str, Any], made: float = -100, **known: Any) -> JobDetail:
    around = Around(NOW + timedelta(seconds=made))
    return job_detail(job_with(RUNNING | status), KEY, NOW, around, **known)


def a_pod(node: int, created: float = -90, scheduled: float | None = -80, begun: float | None = -60) -> PodSeen:
    times = [None if at is None else NOW + timedelta(seconds=at) for at in (created, scheduled, begun)]
    return PodSeen(node, f"digits-{node}", f"node-{node}", "Running", *times)


RAN = {"conditions": [condition("Running", seconds=-50)]}
STEPPED = {"progress": {"attempt": 1, "since": moment(-20)}}
PAGE = {"phase": "Running", "since": moment(-45)}
FAILED = {"time": moment(-70), "attempt": 1, "node": 1, "pod": "x", "cause": "Application", "message": "no"}


def in_short(part: Branch) -> str:
    seconds = "?" if part.seconds is None else f"{part.seconds:g}{'' if part.over else '…'}"
    return f"{part.step} {seconds}"


@pytest.mark.parametrize(
    ("case", "status", "known", "parts"),
    [
        ("all is known", RAN | STEPPED, {"page": PAGE, "pods": [a_pod(0), a_pod(1, scheduled=-85)]},
         "queue 10, scheduling 10, image 20, code 10, ranks met 5, first step 25"),
        ("the ranks meet", RAN, {"pods": [a_pod(0), a_pod(1)]},
         "queue 10, scheduling 10, image 20, code 10, ranks met 50…, first step ?"),
        ("one pod is not scheduled", {}, {"pods": [a_pod(0), a_pod(1, scheduled=None, begun=None)]},
         "queue 10, scheduling 90…, image ?, code ?, ranks met ?, first step ?"),
        ("on this machine, or without the right to see pods", RAN | STEPPED, {},
         "queue 10, code 40, first step 30"),
        ("it waits in a queue", {"startTime": None}, {},
         "queue 100…, scheduling ?, image ?, code ?, ranks met ?, first step ?"),
        ("a page of a later version", RAN | STEPPED, {"page": {"phase": 7, "since": [], "ranks": {}}},
         "queue 10, code 40, first step 30"),
        ("a page whose time is none", RAN | STEPPED, {"page": PAGE | {"since": "yesterday"}},
         "queue 10, code 40, first step 30"),
        ("a page whose time has no zone", RAN | STEPPED, {"page": PAGE | {"since": "2025-12-31T23:59:15"}},
         "queue 10, code 40, first step 30"),
        ("a gang that gathers", RAN | STEPPED, {"page": PAGE | {"phase": "Gathering"}},
         "queue 10, code 40, first step 30"),
        ("again, after an incident", RAN | {"attempt": 2, "incidents": [FAILED]},
         {"pods": [a_pod(node, created=-65) for node in (0, 1)]},
         "queue 5, image 5, code 10, ranks met 50…, first step ?"),
        ("in place, with the pods of before", RAN | {"attempt": 2, "incidents": [FAILED | {"time": moment(-9)}]},
         {"page": PAGE | {"since": moment(-5)}, "pods": [a_pod(0), a_pod(1)]}, "ranks met 4, first step 5…"),
        ("it is suspended", {"state": "Suspended", "startTime": None}, {}, ""),
        ("it has ended", {"conditions": [condition("Complete")]}, {}, ""),
    ],
)  # fmt: skip
def test_a_start_is_a_tree_with_the_seconds_of_each_part(
    case: str, status: dict[str, Any], known: dict[str, Any], parts: str
) -> None:
    assert ", ".join(map(in_short, detail(status, **known).start)) == parts, case


def test_the_status_page_tells_of_each_rank() -> None:
    one = {"rank": 0, "node": 0, "step": 7, "activity": "Saving", "stepSeconds": 0.5, "memoryBytes": 9}
    slow = {"rank": 1, "node": 1, "seconds": {"forward": 2.0, "data": 1, "communication": 9}, "slowed": "heat"}
    found = detail({}, page={"ranks": [one, slow]}, pods=[a_pod(0)])
    first, second = found.ranks
    assert (first.ranks, first.step, first.activity, first.step_seconds, first.memory_bytes) == (
        "0",
        7,
        "Saving",
        0.5,
        9,
    )
    assert (first.node_name, first.state, second.node_name, second.state) == ("node-0", "Running", "", "")
    assert (second.own_seconds, second.slowed, first.own_seconds) == (3.0, "heat", None)
    assert found.slowest is None, "nobody knows the own part of the other rank"


@pytest.mark.parametrize(
    ("case", "page", "rank"),
    [
        ("the longest own part", {"ranks": [{"rank": n, "node": n, "seconds": {"data": n}} for n in (0, 1)]}, "1"),
        ("a straggler", {"ranks": [{"rank": n, "node": n, "seconds": {"data": n}} for n in (0, 1)],
                         "stragglers": [{"node": 0, "rank": 0, "slowdown": 3}]}, "0"),
    ],
)  # fmt: skip
def test_the_slowest_rank_is_the_one_that_the_others_wait_for(case: str, page: dict[str, Any], rank: str) -> None:
    found = detail({}, page=page).slowest
    assert found is not None
    assert found.ranks == rank, case


def test_in_a_large_world_each_node_has_a_row() -> None:
    slow = {"nodes": 64, "procsPerNode": 8, "stragglers": [{"node": 63, "nodeName": "n", "slowdown": 2.0}]}
    found = detail(slow, page={"stragglers": [{"node": 2, "rank": 17, "slowdown": 4.0}]}, pods=[a_pod(63)])
    assert len(found.ranks) == 64
    assert (found.ranks[63].ranks, found.ranks[63].slowdown, found.ranks[63].node_name) == ("504-511", 2.0, "node-63")
    assert found.ranks[2].slowdown == 4.0


@pytest.mark.parametrize(
    "page",
    [
        *(None, [], 7, "x", {"ranks": 7, "stragglers": 7}, {"ranks": [7, {"rank": -1}, {"rank": True, "node": 0}]}),
        {"ranks": [{"rank": 0, "node": 0, "seconds": 7, "step": "x", "activity": "\x1b[31m", "stepSeconds": 1e999}]},
        {"stragglers": [{"node": "x", "slowdown": 2}, 7, {"node": 0, "slowdown": float("nan")}]},
    ],
)
def test_a_page_that_anybody_may_have_written_does_no_harm(page: Any) -> None:
    shown = detail({}, page=page).ranks
    assert all(row.slowdown is row.step is row.step_seconds is None and row.activity.isprintable() for row in shown)


def test_incidents_have_a_place_on_the_time_axis() -> None:
    axis = detail({"incidents": [FAILED, FAILED | {"attempt": 0, "time": moment(-500)}]}).axis
    assert axis is not None
    assert [(one.number, axis.place(one)) for one in axis.incidents] == [(1, 0.0), (2, 0.3)]
    assert detail({"completionTime": moment(-50), "incidents": [FAILED]}).axis.place(axis.incidents[1]) == 0.6  # type: ignore[union-attr]


def test_curves_are_those_of_the_records() -> None:
    start = {"time": moment(-90), "event": "started", "attempt": 1, "step": 0}
    steps = [
        start | {"event": "progress", "step": step, "loss": 1 / step, "metrics": {"accuracy": step}}
        for step in (1, 2)
    ]
    tested = start | {"event": "evaluated", "step": 2, "loss": 0.7}
    found = detail({}, recorded=collected([start, *steps, tested])).curves
    assert {name: curve.points for name, curve in found.items()} == {
        "loss": [(1, 1.0), (2, 0.5)],
        "evaluated loss": [(2, 0.7)],
        "accuracy": [(1, 1.0), (2, 2.0)],
    }


def test_texts_of_incidents_and_names_of_curves_are_one_line() -> None:
    start = {"time": moment(-90), "event": "started", "attempt": 1, "step": 0}
    step = start | {"event": "progress", "step": 1, "metrics": {"a\x1b[2J\n" + "b" * 99: 1}}
    found = detail({"incidents": [FAILED | {"message": "no\nway\x1b[2J"}]}, recorded=collected([start, step]))
    assert found.axis is not None
    assert [one.message for one in found.axis.incidents] == [r"no\nway\x1b[2J"]
    assert [*found.curves] == [r"a\x1b[2J\n" + "b" * 58]


def test_the_words_are_those_of_ddpjob_status() -> None:
    lines = detail({"message": "2 nodes\x1b running"}).lines
    assert lines["Message"] == r"2 nodes\x1b running"
    assert list(lines)[:2] == ["Name", "State"]


@pytest.mark.parametrize("time", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"])
def test_a_time_that_utc_does_not_have_is_unknown(time: str) -> None:
    found = job_detail(job_with({"state": "Failed", "startTime": time, "completionTime": time}), KEY, NOW, Around())
    assert found.axis is None
    axis = detail({"state": "Failed", "completionTime": time}).axis
    assert axis is not None
    assert axis.until == NOW
