"""The points of a cluster job's curves: from where, how many, and what is said if there are none."""

from dataclasses import replace
from typing import Any

import pytest
from ddpjob_operator.api import DDPJob
from ddpjob_operator.cli.cluster.pod_view import GangSeen
from ddpjob_operator.cli.top import job_points
from ddpjob_operator.cli.top.job_points import LONGEST_POINT, JobPoints
from ddpjob_operator.client import ClusterError
from ddpjob_operator.history import PlaceError
from ddpjob_operator.view_model import curves_of

from tests.support.waiting import wait_for
from tests.unit.client.api import A_POD, a_job, jobs_with
from tests.unit.view_model.jobs import condition, job_with, moment

RANK_0 = replace(A_POD, node=0)


def started(attempt: int, step: int = 0) -> dict[str, Any]:
    return {"time": moment(step), "event": "started", "attempt": attempt, "step": step}


def at(step: int, attempt: int = 1, **values: Any) -> dict[str, Any]:
    return {"time": moment(step), "event": "progress", "attempt": attempt, "step": step, "loss": 1 / step, **values}


class Gang:
    """A gang whose supervisor tells its records, and what it was asked."""

    def __init__(self, *records: Any, **status: Any) -> None:
        self.records, self.asked, self.uid = [*records], list[int](), "pod-1"
        self.refuses: ClusterError | None = None
        self.status = {"attempt": 1, "bookkeeping": {"supervised": True}, **status}
        self.points = JobPoints(jobs_with(curve=self.curve))

    def curve(self, _: Any, pods: Any, after: int) -> Any:
        assert [pod.uid for pod in pods] == [self.uid]
        self.asked.append(after)
        if self.refuses is not None:
            raise self.refuses
        return {"last": len(self.records), "records": self.records[after:]}

    @property
    def job(self) -> DDPJob:
        return job_with(self.status)

    def look(self, page: Any = ..., problem: str = "") -> tuple[list[int], str]:
        """The steps of the loss, and why there are no others."""
        shown = {"progress": {"lastPoint": len(self.records)}} if page is ... else page
        gang = GangSeen([replace(RANK_0, uid=self.uid)], shown, problem)
        records, why = self.points.read(a_job(), self.job, gang)
        loss = curves_of(records).get("loss")
        return [int(step) for step, _ in loss.points] if loss else [], why


def test_only_new_points_are_asked_for() -> None:
    gang = Gang(started(1), at(1))
    assert gang.look() == gang.look() == ([1], "")
    gang.records += [at(2), at(3)]
    assert gang.look() == ([1, 2, 3], "")
    assert gang.asked == [0, 2]


def test_what_a_former_pod_has_told_stays_while_somebody_looks() -> None:
    gang = Gang(started(1), at(1), at(2))
    gang.look()
    again = [started(2, 0), at(1, 2), at(2, 2), at(3, 2)]
    gang.uid, gang.records, gang.status = "pod-2", again, gang.status | {"attempt": 2}
    assert gang.look() == ([1, 2, 3], "")
    gang.records.append(at(4, 2))
    assert gang.look() == ([1, 2, 3, 4], "")
    assert gang.asked == [0, 0, 4]


def test_who_comes_later_is_told_which_points_are_missing() -> None:
    gang = Gang(started(3, 10), at(11, 3), attempt=3)
    steps, why = gang.look()
    assert steps == [11]
    assert why.startswith("the points before attempt 3 went with their pods; there is no history: ")


FORBIDDEN = 'User "ann" cannot create resource "pods/portforward" in API group ""'


@pytest.mark.parametrize(
    ("status", "page", "problem", "why"),
    [
        ({}, None, FORBIDDEN, FORBIDDEN),
        ({"conditions": [condition("Complete")]}, None, "", "the pods that had the points have ended"),
        ({"bookkeeping": {}}, None, "", "the image has no supervisor that records steps"),
        ({}, {"progress": {"step": 7}}, "", "the supervisor in the image is of an older release, which keeps no "),
        ({}, {"progress": None}, "", "no step has been recorded yet"),
        ({"historyPath": "/data/history"}, None, "", "no step has been recorded yet; its history is in /data/hist"),
    ],
)
def test_where_there_is_no_curve_it_is_said_why(status: dict[str, Any], page: Any, problem: str, why: str) -> None:
    steps, told = Gang(**status).look(page, problem)
    assert (steps, told[: len(why)]) == ([], why)


def test_a_refusal_is_told_and_the_points_that_are_known_stay() -> None:
    gang = Gang(started(1), at(1))
    gang.look()
    gang.records.append(at(2))
    gang.refuses = ClusterError("no port")
    assert gang.look() == ([1], "")
    other = Gang(started(1), at(1))
    other.refuses = ClusterError("no port")
    assert other.look()[1].startswith("no port; ")


@pytest.mark.parametrize(
    "answer",
    [None, [], {}, {"last": "x", "records": []}, {"last": 9, "records": "x"}, {"last": True, "records": [at(1)]}],
)
def test_an_answer_that_is_none_is_not_taken(answer: Any) -> None:
    gang = Gang(started(1), at(1))
    gang.points = JobPoints(jobs_with(curve=lambda *_: answer))
    assert gang.look()[0] == []


def test_what_a_pod_says_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_points, "MOST_POINTS", 10)
    gang = Gang(started(1), at(1, text="x" * LONGEST_POINT), at(2), "x", [[]], None)
    assert gang.look()[0] == [2]
    for step in range(3, 100):
        gang.records.append(at(step))
        gang.look()
        assert len(gang.points._live) <= 3 * 10


@pytest.mark.parametrize("finished", [False, True])
def test_points_of_earlier_attempts_come_from_a_history_that_has_a_url(
    monkeypatch: pytest.MonkeyPatch, *, finished: bool
) -> None:
    class History:
        def events(self, _: int) -> list[Any]:
            return [{"event": "facts", "attempt": 1}, started(1), at(1), at(2), started(2, 1), at(2, 2)]

    opened = list[str]()
    monkeypatch.setattr(job_points, "open_place", lambda url: opened.append(url) or url)
    monkeypatch.setattr(job_points, "find_history", lambda *_: History())
    status = {"attempt": 2, "historyPath": "s3://bucket/history"}
    if finished:
        status |= {"conditions": [condition("Complete")]}
    gang = Gang(*[] if finished else [started(2, 1), at(2, 2), at(3, 2)], **status)
    gang.look()
    steps = [1, 2] if finished else [1, 2, 3]
    wait_for("the history", lambda: gang.look() == (steps, ""))
    assert opened == ["s3://bucket/history"]


def test_a_history_that_cannot_be_read_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(url: str) -> None:
        raise PlaceError(f"cannot read {url}: the credentials do not permit it")

    monkeypatch.setattr(job_points, "open_place", refused)
    gang = Gang(attempt=1, historyPath="s3://bucket/history", conditions=[condition("Failed")])
    why = "the pods that had the points have ended; cannot read s3://bucket/history: the credentials do not permit it"
    wait_for("the refusal", lambda: gang.look(None)[1].startswith("the pods that had the points have ended; cannot"))
    assert gang.look(None) == ([], why)
