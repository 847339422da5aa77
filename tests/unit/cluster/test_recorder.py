"""What becomes of an event whose answer was lost, and of others beside one that is slow."""

import asyncio
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from ddpjob_operator.cluster.kube.api_client import ApiClient, ApiError, FencedError
from ddpjob_operator.cluster.kube.clock import Clock
from ddpjob_operator.cluster.kube.objects import ObjectMeta
from ddpjob_operator.cluster.recorder import TRIES, WAITING_EVENTS, EventRecorder
from ddpjob_operator.engine import Event

from tests.support import virtual_time

from .counting import counts

JOB = ObjectMeta(name="digits", namespace="team", uid="uid-1")
NO_ROOM = Event(warning=True, reason="Blocked", message="No room")


def announced(api: ApiClient, times: int) -> None:
    """The same is announced so many times, and no more is to be written."""

    async def play() -> None:
        recorder = EventRecorder(api)
        writing = asyncio.create_task(recorder.run())
        for _ in range(times):
            recorder.record(JOB, NO_ROOM)
        await recorder.drained()
        writing.cancel()

    virtual_time.run(play())


class Deaf(ApiClient):
    """An API server that writes an event, and whose first answer does not arrive."""

    def __init__(self) -> None:
        self.counts: list[int] = []
        self.now = Clock().now

    async def create(self, _resource: Any, _namespace: Any, body: Any) -> Any:
        if self.counts:
            raise ApiError(409, "AlreadyExists", "it is there already")
        self.counts.append(body["count"])
        raise ApiError(0, "NoAnswer", "no answer")

    async def merge(self, _resource: Any, _namespace: str, _name: str, body: Any) -> Any:
        if "count" in body:
            self.counts.append(body["count"])
        return SimpleNamespace(count=self.counts[-1])


def test_an_event_whose_answer_was_lost_counts_once() -> None:
    api = Deaf()
    announced(api, times=2)
    assert api.counts == [1, 2]


class Counted(ApiClient):
    """An API server with an event of an operator before, which has no time at first, and then says that it has it."""

    def __init__(self, count: int) -> None:
        self.count, self.asked = count, 0
        self.now = Clock().now

    async def create(self, _resource: Any, _namespace: Any, _body: Any) -> Any:
        self.asked += 1
        raise ApiError(503, "Unavailable", "not now") if self.asked == 1 else ApiError(409, "AlreadyExists", "known")

    async def merge(self, _resource: Any, _namespace: str, _name: str, body: Any) -> Any:
        self.count = body.get("count", self.count)
        return SimpleNamespace(count=self.count)


def test_an_event_goes_on_to_count_though_its_first_answer_was_an_error() -> None:
    api = Counted(7)
    announced(api, times=2)
    assert api.count == 9


def test_an_event_that_a_former_operator_has_written_once_counts_twice() -> None:
    api = Counted(1)
    api.asked = 1
    announced(api, times=1)
    assert api.count == 2


class Busy(ApiClient):
    """An API server that is busy each time, and says once when it wants to be asked again."""

    def __init__(self) -> None:
        self.at: list[float] = []
        self.now = Clock().now

    async def create(self, _resource: Any, _namespace: Any, _body: Any) -> Any:
        self.at.append(asyncio.get_running_loop().time())
        raise ApiError(503, "Unavailable", "not now", 7.0 if len(self.at) == TRIES - 1 else None)


def test_an_event_is_tried_again_later_each_time_and_given_up_in_the_end() -> None:
    api = Busy()
    with counts("ddpjob_events_lost_total"):
        announced(api, times=1)
    pauses = [after - before for before, after in pairwise(api.at)]
    assert pauses == pytest.approx([*(0.2 * 2**again for again in range(TRIES - 2)), 7.0], abs=0.05)


class Refusing(ApiClient):
    """An API server, or what stands before it, that writes no event."""

    def __init__(self, error: Exception) -> None:
        self.error = error
        self.now = Clock().now

    async def create(self, *_: Any) -> Any:
        raise self.error


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (ApiError(403, "Forbidden", "exceeded quota"), "exceeded quota"),
        (ApiError(403, "Forbidden", ""), "Forbidden (403)"),
        (FencedError(), "this process is not the leader, or no longer is"),
    ],
)
def test_why_an_event_is_not_written_is_logged_with_the_event_and_its_job(
    error: Exception, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    announced(Refusing(error), times=1)
    assert caplog.messages == [f"the event Blocked could not be written: {why}"]
    assert [vars(record)["job"] for record in caplog.records] == ["digits"]


def test_events_that_find_no_room_are_lost_and_counted() -> None:
    recorder = EventRecorder(Busy())
    with counts("ddpjob_events_lost_total", times=3):
        for _ in range(WAITING_EVENTS + 3):
            recorder.record(JOB, NO_ROOM)


class HalfDeaf(ApiClient):
    """An API server with an event of an operator before; its answer to the first new count does not arrive."""

    def __init__(self, count: int) -> None:
        self.count, self.answers = count, 0
        self.now = Clock().now

    async def create(self, _resource: Any, _namespace: Any, _body: Any) -> Any:
        raise ApiError(409, "AlreadyExists", "known")

    async def merge(self, _resource: Any, _namespace: str, _name: str, body: Any) -> Any:
        self.count = body.get("count", self.count)
        self.answers += "count" in body
        if "count" in body and self.answers == 1:
            raise ApiError(0, "NoAnswer", "no answer")
        return SimpleNamespace(count=self.count)


def test_an_event_of_an_operator_before_counts_once_though_the_answer_was_lost() -> None:
    api = HalfDeaf(7)
    announced(api, times=1)
    assert api.count == 8


class Slow(ApiClient):
    """An API server that takes its time for each event."""

    def __init__(self) -> None:
        self.written: list[str] = []
        self.now = Clock().now

    async def create(self, _resource: Any, _namespace: Any, body: Any) -> Any:
        await asyncio.sleep(1)
        self.written.append(f"{body['involvedObject']['uid']} {body['reason']}")


def test_jobs_do_not_wait_for_each_others_events_and_those_of_one_job_stay_in_order() -> None:
    api, jobs = Slow(), [ObjectMeta(name="digits", namespace="team", uid=f"uid-{number}") for number in range(400)]
    reasons = ("Created", "Running")

    async def play() -> float:
        recorder = EventRecorder(api)
        writing = asyncio.create_task(recorder.run())
        began = asyncio.get_running_loop().time()
        for reason in reasons:
            for job in jobs:
                recorder.record(job, Event(warning=False, reason=reason, message="-"))
        await recorder.drained()
        writing.cancel()
        return asyncio.get_running_loop().time() - began

    seconds = virtual_time.run(play())
    assert seconds < len(jobs) * len(reasons) / 4
    for job in jobs:
        assert [line for line in api.written if line.startswith(f"{job.uid} ")] == [f"{job.uid} {r}" for r in reasons]


class Keeping(ApiClient):
    """An API server that keeps events for as long as a test wants."""

    def __init__(self) -> None:
        self.kept: dict[str, int] = {}
        self.written: list[int] = []
        self.now = Clock().now

    async def create(self, _resource: Any, _namespace: Any, body: Any) -> Any:
        self.kept[body["metadata"]["name"]] = body["count"]
        self.written.append(body["count"])

    async def merge(self, _resource: Any, _namespace: str, name: str, body: Any) -> Any:
        if name not in self.kept:
            raise ApiError(404, "NotFound", "it has expired")
        self.written.append(body["count"])


def test_an_event_that_has_expired_is_written_anew_and_counts_from_one() -> None:
    async def play() -> list[int]:
        api = Keeping()
        recorder = EventRecorder(api)
        writing = asyncio.create_task(recorder.run())
        for expires in (False, True, False):
            recorder.record(JOB, NO_ROOM)
            await recorder.drained()
            if expires:
                api.kept.clear()
        recorder.record(JOB, NO_ROOM)
        await recorder.drained()
        writing.cancel()
        return api.written

    assert virtual_time.run(play()) == [1, 2, 1, 2]


def test_of_many_events_those_are_remembered_that_were_written_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ddpjob_operator.cluster.recorder.REMEMBERED_EVENTS", 2)
    recorder = EventRecorder(Keeping())
    for name in "abacc":
        recorder._remember(name, 1)
    assert [*recorder._counts] == ["a", "c"]
