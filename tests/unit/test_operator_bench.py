"""What the bench of the operator reads from an audit log, and what it makes of figures."""

import json
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bench.operator import audit, report
from bench.operator.contestants import CONTESTANTS, DDPJOB
from bench.operator.stage import quantile

OURS, PLAYER, USER = "ddpjob", audit.PLAYER, "admin"


def line(second: int, user: str, verb: str, what: str, name: str, *, code: int = 200, like: str = "") -> str:
    resource, _, subresource = what.partition("/")
    target = {"resource": resource, "namespace": "here", "name": name}
    event: dict[str, Any] = {
        "verb": verb,
        "user": {"username": user},
        "objectRef": target | ({"subresource": subresource} if subresource else {}),
        "responseStatus": {"code": code},
        "requestReceivedTimestamp": f"2026-01-01T00:00:{second:02}.000000Z",
        "stageTimestamp": f"2026-01-01T00:00:{second:02}.500000Z",
    }
    if like:
        event["requestObject"] = {"metadata": {"generateName": like}}
    return json.dumps(event, separators=(",", ":")) + "\n"


LIFE = (
    line(0, USER, "create", "ddpjobs", "j0001"),
    line(1, OURS, "patch", "ddpjobs/status", "j0001"),
    line(2, OURS, "create", "services", "j0001"),
    line(3, OURS, "create", "pods", "j0001-0-abcde"),
    line(4, OURS, "create", "pods", "j0001-1-abcde", code=409),
    line(5, OURS, "create", "pods", "", like="j0001-1-"),
    line(5, OURS, "create", "events", "j0001.17"),
    line(6, PLAYER, "patch", "pods/status", "j0001-0-abcde"),
    line(7, PLAYER, "patch", "pods/status", "j0001-1-vwxyz"),
    line(8, PLAYER, "patch", "pods/status", "j0001-0-abcde"),
    line(9, PLAYER, "patch", "pods/status", "j0001-1-vwxyz"),
    line(10, OURS, "patch", "ddpjobs/status", "j0001"),
    line(11, OURS, "delete", "pods", "j0001-1-vwxyz"),
    line(12, OURS, "update", "leases", "ddpjob-operator"),
)


def read(tmp_path: Path, lines: Iterable[str], since: int = 0) -> audit.Life:
    log = tmp_path / "audit.log"
    log.write_text("".join(lines))
    plant: Any = SimpleNamespace(audit_log=log)
    return audit.lives(plant, since, "here", "ddpjobs", frozenset({OURS}))["j0001"]


def test_a_life_has_the_times_at_which_requests_came_and_were_answered(tmp_path: Path) -> None:
    life = read(tmp_path, LIFE)
    moments = [life.submitted, *life.created, life.ended, life.said]
    assert [moment - life.submitted for moment in moments] == [0, 3.5, 5.5, 9.5, 10.5]


def test_writes_are_also_those_that_were_refused_but_no_events_deletions_and_leases(tmp_path: Path) -> None:
    life = read(tmp_path, LIFE)
    assert (life.others, life.events) == (6, 1)


def test_what_was_before_does_not_count(tmp_path: Path) -> None:
    assert read(tmp_path, LIFE, since=sum(map(len, LIFE[:-3]))).others == 1


@pytest.mark.parametrize(("share", "value"), [(0.5, 2), (0.75, 3), (0.76, 4), (0.99, 4), (1.0, 4)])
def test_a_quantile_is_the_value_that_so_many_do_not_exceed(share: float, value: float) -> None:
    assert quantile([4, 2, 1, 3], share) == value


def test_more_jobs_per_second_than_the_target_wants_is_met_and_less_is_not() -> None:
    found = {
        DDPJOB.title: {"burst500": [{"jobs/s": 30.0, "writes per job, most": 12}]},
        CONTESTANTS["pytorchjob"].title: {"burst500": [{"jobs/s": 2.0}]},
        CONTESTANTS["jobset"].title: {"burst500": [{"jobs/s": 25.0}]},
    }
    judged = [(row.target, row.met) for row in report.targets(found) if row.found != "not measured"]
    assert judged == [("≤ 12", True), ("ratio ≥ 1", True), ("ratio ≥ 1.4", False)]


def test_of_a_contestant_that_was_left_out_it_is_said_that_it_was_not_measured() -> None:
    rows = report.targets({DDPJOB.title: {"burst500": [{"jobs/s": 30.0, "writes per job, most": 12}]}})
    beside = [(row.found, row.met) for row in rows if "beside" in row.what]
    assert beside == [("not measured", None)] * len(report.LEAST_OF_JOBS)


@pytest.mark.parametrize(
    ("slope", "minutes", "verdict"), [(5.0, 3.0, ""), (0.05, 60.0, "yes"), (-5.0, 60.0, "yes"), (0.2, 60.0, "**no**")]
)
def test_growth_is_told_by_the_job_and_judged_over_an_hour_alone(slope: float, minutes: float, verdict: str) -> None:
    figures = {
        "anonymous MiB per 1,000 jobs": slope,
        "anonymous MiB at the end": 76.0,
        "jobs": 10_000.0,
        "minutes": minutes,
    }
    (row,) = report.targets({DDPJOB.title: {"churn": [figures]}})
    assert row.what == f"growth of memory while 10000 jobs came and went in {minutes:.0f} min"
    assert (row.found, row.verdict) == (f"{slope:.3g} MiB per 1,000 jobs, to 76 MiB", verdict)


@pytest.mark.parametrize(
    ("seconds", "verdicts"), [(3.0, ["yes", "yes"]), (3.1, ["**no**", "yes"]), (10.1, ["**no**", "**no**"])]
)
def test_a_large_job_is_judged_by_its_seconds_and_its_speed_beside_that_by_hand_is_told(
    seconds: float, verdicts: list[str]
) -> None:
    figures = {"writes until it runs": 1004.0, "statuses": 9.0, "object KB": 4.0}
    for done in ("created", "recreated"):
        figures |= {f"{done} s": seconds, f"{done} by hand s": 1.0, f"{done}, share of the speed by hand": 0.1}
    rows = report.targets({DDPJOB.title: {"big": [figures]}})
    assert [row.verdict for row in rows if "by hand 1 s: 10% of its speed" in row.found] == verdicts


@pytest.mark.parametrize(("p99", "verdict"), [(300.0, "yes"), (301.0, "**no**")])
def test_small_jobs_beside_a_large_one_are_judged_by_the_slowest_and_its_own_speed_is_told(
    p99: float, verdict: str
) -> None:
    figures = {"pods": 4096.0, "alone pods/s": 280.0, "beside small jobs pods/s": 250.0, "small jobs": 70.0}
    created = {"created p50 ms": 100.0, "created p99 ms": p99}
    rows = report.targets({DDPJOB.title: {"fairness": [figures | created]}})
    assert [row.verdict for row in rows] == [verdict, "", "", ""]
    assert [row.found for row in rows[1:]] == ["100 ms", "250 pods/s", "280 pods/s"]


def test_a_goal_beyond_a_target_is_shown_and_not_demanded() -> None:
    found = {
        DDPJOB.title: {"live": [{"RSS MiB, live jobs": 200.0, "start: quiet after s": 1.0, "start: writes": 0.0}]}
    }
    row = report.targets(found)[0]
    assert (row.target, row.met) == ("≤ 300 MiB, goal 150", True)


def test_what_was_not_measured_is_said_in_its_cell() -> None:
    found = {
        DDPJOB.title: {"burst500": [{"jobs/s": 30.0, "writes per job, most": 9}]},
        CONTESTANTS["job"].title: dict[str, list[dict[str, float]]](),
    }
    assert "| 500 jobs of 4 pods: jobs/s | 30 | not measured |" in report.side_by_side(found, {})
