"""kopf's watch of jobs, where it ends at what it did not expect."""

import asyncio
import threading
from http import HTTPStatus
from types import SimpleNamespace
from typing import Any

import pytest
from ddpjob_operator.cluster import job_watch
from ddpjob_operator.cluster.store import Store

from tests.support.waiting import patience

from .manifests import a_manifest, name_of

WITHIN_SECONDS = 20.0


class NoMoreError(Exception):
    """The cluster has no DDPJobs any more, as kopf says it."""

    status = HTTPStatus.NOT_FOUND


def test_where_kopf_ends_it_begins_anew_and_nothing_else_does(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[dict[str, Any]] = []
    known, others = asyncio.Event(), asyncio.Event()
    seen_on, third = threading.Event(), threading.Event()
    job = {**a_manifest(), "spec": {}, "status": {}}

    async def kopf_operator(**how: Any) -> None:
        begun.append(how)
        if len(begun) > 2:
            third.set()
            seen_on.wait(patience(WITHIN_SECONDS))
            raise NoMoreError  # It ends the thread.
        if len(begun) == 2:
            how["registry"]({"type": "ADDED", "object": job})
        raise ValueError("half a line")

    async def play() -> None:
        loop = asyncio.get_running_loop()
        store = Store(lambda _: loop.call_soon(known.set))
        monkeypatch.setattr(job_watch, "_registry", lambda tell: tell)
        monkeypatch.setattr(job_watch.kopf, "operator", kopf_operator)
        monkeypatch.setattr(job_watch, "backoff", lambda *_, **__: 0.0)

        async def choose(_: object) -> list[str]:
            return ["team"]

        tasks = [asyncio.create_task(job_watch.watch(store.jobs, choose)), asyncio.create_task(others.wait())]
        await asyncio.wait_for(known.wait(), patience(WITHIN_SECONDS))
        assert not any(task.done() for task in tasks)
        assert [key for key, _ in store.jobs.all()] == [("team", name_of())]
        # Else it would ask a loop that has ended where to watch.
        assert await asyncio.to_thread(third.wait, patience(WITHIN_SECONDS))
        for task in tasks:
            task.cancel()
        seen_on.set()

    asyncio.run(play())
    for thread in threading.enumerate():
        if thread.name == "kopf":  # Else it would begin anew with the real kopf, beside other tests.
            thread.join(patience(WITHIN_SECONDS))
            assert not thread.is_alive()
    assert begun[0]["namespaces"] == ["team"]


def test_kopf_begins_anew_later_each_time_unless_it_has_lasted(monkeypatch: pytest.MonkeyPatch) -> None:
    lasts, now, pauses = [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 600.0, 0.0], [0.0], list[float]()

    async def kopf(*_: object) -> None:
        if not lasts:
            raise NoMoreError
        now[0] += lasts.pop(0)
        raise ValueError("half a line")

    monkeypatch.setattr(job_watch, "_operator", kopf)
    monkeypatch.setattr(job_watch, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=pauses.append))
    nothing: Any = None
    job_watch._watch(nothing, nothing)
    least = (0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 0.2, 0.4)
    assert all(seconds <= pause <= 1.5 * seconds for seconds, pause in zip(least, pauses, strict=True))
