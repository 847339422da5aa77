"""What is heard of a job's supervisor, when, and at what cost."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any
from unittest.mock import DEFAULT, Mock

import pytest
from aiohttp import web
from ddpjob_operator.cluster import supervisors
from ddpjob_operator.cluster.supervisors import Supervisors, _Supervisor
from ddpjob_operator.cluster.workqueue import WorkQueue
from ddpjob_operator.engine import Asked, SupervisorReport

from tests.support import virtual_time

from .counting import counts
from .supervisors import POD, UID, Handler, Supervisor, serving

A_WHILE = 60.0
KEY = ("team", "digits")


class Desk:
    """Who works on the jobs: looks at one whenever the queue has it."""

    def __init__(self) -> None:
        self.queue = WorkQueue()
        self.queue.open()
        self.supervisors = Supervisors(self.queue, lambda: datetime.now(UTC))
        self.looks = 0

    async def hears(
        self, asked: Asked | None, expected: Callable[[SupervisorReport], bool] = lambda _: True
    ) -> SupervisorReport:
        """What is heard once it is as expected; it looks when there is reason to, and only then."""
        report = self.supervisors.attend(KEY, UID, asked)
        while report is None or not expected(report):
            key = await self.queue.take()
            self.looks += 1
            report = self.supervisors.attend(key, UID, asked)
            self.queue.done(key)
        return report


def played(play: Callable[[Desk, AsyncExitStack], Awaitable[None]]) -> None:
    async def whole() -> None:
        desk = Desk()
        async with asyncio.timeout(A_WHILE), AsyncExitStack() as stack:
            stack.push_async_callback(desk.supervisors.close)
            await play(desk, stack)
        await asyncio.sleep(0)
        left = [task for task in asyncio.all_tasks() if task.get_name().startswith("supervisor of")]
        assert left == [], "who listens to nobody has no tasks"

    virtual_time.run(whole())


def scene(supervisor: Callable[[], Supervisor] = Supervisor) -> Callable[[Callable[..., Awaitable[None]]], None]:
    """Plays with a desk and a supervisor that is served."""

    def start(play: Callable[..., Awaitable[None]]) -> None:
        async def with_supervisor(desk: Desk, stack: AsyncExitStack) -> None:
            present = supervisor()
            await play(desk, present, await stack.enter_async_context(serving(present.handle)))

        played(with_supervisor)

    return start


def test_news_is_heard_at_once_and_each_is_one_look() -> None:
    @scene()
    async def play(desk: Desk, supervisor: Supervisor, asked: Asked) -> None:
        first = await desk.hears(asked)
        assert (first.attempt, first.phase, first.pod, first.error) == (1, "Running", POD, "")
        for attempt in range(2, 6):
            await supervisor.until(lambda: supervisor.waiting[f'"{supervisor.document["mark"]}"'] == 1)
            await supervisor.says(attempt=attempt)
            await desk.hears(asked, lambda report, attempt=attempt: report.attempt == attempt)
        assert desk.looks == 5
        assert supervisor.asked <= 6, "none was asked for in vain"


def test_what_was_heard_of_a_job_is_nothing_that_another_of_its_name_has_said() -> None:
    @scene()
    async def play(desk: Desk, _: Supervisor, asked: Asked) -> None:
        report = await desk.hears(asked)
        supervisors = desk.supervisors
        assert (supervisors.report(KEY, UID), supervisors.asked(KEY, UID)) == (report, asked)
        for key, uid in ((KEY, "another"), (("team", "other"), UID)):
            assert (supervisors.report(key, uid), supervisors.asked(key, uid)) == (None, None)
        supervisors.attend(KEY, UID, None)
        assert (supervisors.report(KEY, UID), supervisors.asked(KEY, UID)) == (report, None)


def test_what_is_no_news_is_read_every_ten_seconds_and_looked_at_if_it_is_new() -> None:
    @scene()
    async def play(desk: Desk, supervisor: Supervisor, asked: Asked) -> None:
        await desk.hears(asked)
        await supervisor.says(progress={"step": 7}, mark="1")
        report = await desk.hears(asked, lambda report: report.progress is not None)
        assert report.progress is not None
        assert report.progress.step == 7
        looks, questions, began = desk.looks, supervisor.asked, asyncio.get_running_loop().time()
        await supervisor.until(lambda: supervisor.asked == questions + 3)
        assert asyncio.get_running_loop().time() - began == pytest.approx(20, abs=1), "one of the three comes at once"
        assert not desk.queue._ready, "nothing was new"
        assert desk.looks == looks


def test_since_when_another_supervisor_than_rank_0s_waits_is_told_by_when_that_was_heard() -> None:
    @scene(lambda: Supervisor(coordinator="10.0.0.1:29502", phase="Gathering", since=None))
    async def play(desk: Desk, supervisor: Supervisor, asked: Asked) -> None:
        first = await desk.hears(asked)
        await supervisor.says(missing=[2])
        again = await desk.hears(asked, lambda report: report.missing == (2,))
        assert again.since == first.since == first.at != again.at


def test_a_server_that_does_not_wait_is_not_asked_again_before_its_time() -> None:
    times: list[float] = []
    enough = asyncio.Event()

    async def at_once(_: web.Request) -> web.StreamResponse:
        times.append(asyncio.get_running_loop().time())
        if len(times) == 4:
            enough.set()
        return web.json_response(Supervisor().document)

    async def play(desk: Desk, stack: AsyncExitStack) -> None:
        await desk.hears(await stack.enter_async_context(serving(at_once)))
        await enough.wait()
        assert min(later - earlier for earlier, later in pairwise(times)) >= 9.9, times

    played(play)


def test_a_pod_that_has_news_all_the_time_does_not_keep_the_operator_busy() -> None:
    marks = iter(range(10**6))

    async def always_changing(_: web.Request) -> web.StreamResponse:
        return web.json_response(Supervisor().document, headers={"ETag": f'"{next(marks)}"'})

    async def play(desk: Desk, stack: AsyncExitStack) -> None:
        await desk.hears(await stack.enter_async_context(serving(always_changing)))
        await asyncio.sleep(9.0)
        assert next(marks) == 21 + 4, "so many at once, and then one in two seconds"

    played(play)


def test_what_was_heard_last_stays_while_nothing_can_be_heard() -> None:
    async def play(desk: Desk, stack: AsyncExitStack) -> None:
        supervisor = Supervisor(attempt=3)
        async with serving(supervisor.handle) as asked:
            first = await desk.hears(asked)
        unheard = await desk.hears(asked, lambda report: bool(report.error))
        assert (unheard.attempt, unheard.at) == (3, first.at)
        assert unheard.error_since is not None
        await stack.enter_async_context(serving(supervisor.handle, asked.port))
        again = await desk.hears(asked, lambda report: not report.error)
        assert (again.attempt, again.error_since) == (3, None)
        assert desk.supervisors._supervisors[KEY].failures == 0, "the next failure is the first again"
        assert desk.looks <= 4, "the same error, again and again, is no news"

    played(play)


def test_where_no_supervisor_is_that_is_known_and_looked_at_once() -> None:
    async def play(desk: Desk, _: AsyncExitStack) -> None:
        async with serving(Supervisor().handle) as asked:
            pass
        report = await desk.hears(asked)
        assert (report.attempt, desk.looks) == (0, 1)
        assert report.error == f"nothing listens on 127.0.0.1:{asked.port}"

    played(play)


def test_where_nothing_listened_it_is_asked_less_often_until_something_does() -> None:
    async def play(desk: Desk, stack: AsyncExitStack) -> None:
        supervisor = Supervisor()
        async with serving(supervisor.handle) as asked:
            pass
        await desk.hears(asked)
        await asyncio.sleep(20)
        assert desk.supervisors._supervisors[KEY].failures == 5
        await stack.enter_async_context(serving(supervisor.handle, asked.port))
        report = await desk.hears(asked, lambda report: not report.error)
        assert (report.attempt, supervisor.asked) == (1, 1)

    played(play)


async def of_another_job(_: web.Request) -> web.StreamResponse:
    return web.json_response(Supervisor(job="another").document)


async def garbage(_: web.Request) -> web.StreamResponse:
    return web.Response(text="<html>")


@pytest.mark.parametrize(
    ("handler", "error"), [(of_another_job, "returned the status of another job"), (garbage, "is not a status")]
)
def test_what_tells_nothing_of_the_job_is_an_error(handler: Handler, error: str) -> None:
    async def play(desk: Desk, stack: AsyncExitStack) -> None:
        report = await desk.hears(await stack.enter_async_context(serving(handler)))
        assert error in report.error
        assert report.attempt == 0

    with counts("ddpjob_status_reads_total", result="unreadable"):
        played(play)


def test_a_bug_ends_nothing_and_it_is_asked_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    slips_once = Mock(wraps=supervisors.parse_report, side_effect=[KeyError("a bug"), DEFAULT])
    monkeypatch.setattr(supervisors, "parse_report", slips_once)

    with counts("ddpjob_status_reads_total", result="bug"), counts("ddpjob_status_reads_total", result="ok"):

        @scene()
        async def play(desk: Desk, _: Supervisor, asked: Asked) -> None:
            assert (await desk.hears(asked)).attempt == 1

    assert [message[:13] for message in caplog.messages] == ["this is a bug"]


def test_of_a_pod_that_has_ended_the_last_words_stay_until_there_is_another() -> None:
    @scene()
    async def play(desk: Desk, supervisor: Supervisor, asked: Asked) -> None:
        await desk.hears(asked)
        assert (await desk.hears(None)).pod == POD
        await supervisor.says(phase="Done")
        await supervisor.until(lambda: not supervisor.waiting.total())
        await asyncio.sleep(A_WHILE / 2)  # It could be heard by now.
        assert (await desk.hears(None)).phase == "Running", "nobody listens any more"
        assert desk.supervisors.attend(KEY, UID, Asked("digits-0-other", asked.address, asked.port)) is None
        assert (await desk.hears(Asked("digits-0-other", asked.address, asked.port))).phase == "Done"


@pytest.mark.parametrize(
    "leave",
    [
        lambda desk: desk.supervisors.forget(KEY),
        lambda desk: desk.supervisors.attend(KEY, "made-anew", None),
    ],
    ids=["it is forgotten", "another job has its name"],
)
def test_nothing_is_left_of_a_job_that_is_gone(leave: Callable[[Desk], Any]) -> None:
    @scene()
    async def play(desk: Desk, supervisor: Supervisor, asked: Asked) -> None:
        await desk.hears(asked)
        await supervisor.until(lambda: supervisor.waiting['"1"'] == 1)
        leave(desk)
        assert desk.supervisors.attend(KEY, UID, None) is None


def test_with_more_jobs_than_questions_each_waits_for_a_shorter_time_and_all_are_heard(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(supervisors, "OPEN_QUESTIONS", 4)

    @scene()
    async def play(desk: Desk, supervisor: Supervisor, asked: Asked) -> None:
        loop = asyncio.get_running_loop()
        keys = [("team", f"job-{number}") for number in range(12)]
        began = loop.time()
        for key in keys:
            desk.supervisors.attend(key, UID, asked)
        await supervisor.until(lambda: supervisor.asked >= 36)
        assert supervisor.most_waiting == 4
        assert supervisor.waits == {"wait=0", "wait=3"}, "of ten seconds a third: there are three times as many jobs"
        assert all(desk.supervisors.attend(key, UID, asked) for key in keys)
        assert loop.time() - began >= 10.0, "the first, the second at once after it, and a third"


@pytest.mark.parametrize(
    ("spoke", "refused", "pauses"),
    [
        (False, False, [1, 2, 4, 8, 10, 10, 10, 10]),
        (True, True, [1, 2, 4, 8, 10, 10, 10, 10]),
        (False, False, [1, 2, 4, 8, *[10] * 16, 60, 60]),
        (True, False, [1, 2, 4, 8, *[10] * 18]),
        (False, True, [1, 2, 4, 8, 16, 32, 60, 60]),
    ],
    ids=["it is slow", "it has spoken before", "it never answers", "it did once", "there was never one"],
)
def test_who_does_not_answer_is_asked_less_and_less_often(*, spoke: bool, refused: bool, pauses: list[float]) -> None:
    async def play(desk: Desk, stack: AsyncExitStack) -> None:
        asked = await stack.enter_async_context(serving(Supervisor().handle))
        supervisor = _Supervisor(UID, asked, await desk.hears(asked) if spoke else None, refused=refused)
        assert [supervisor.pause_after_failure() for _ in pauses] == pauses

    played(play)
