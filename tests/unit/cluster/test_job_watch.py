"""kopf's watch of jobs, where it ends at what it did not expect."""

import asyncio
import threading
from collections.abc import Callable
from http import HTTPStatus
from types import SimpleNamespace
from typing import Any

import pytest
from ddpjob_operator.cluster import job_watch
from ddpjob_operator.cluster.kube.objects import JobObject, read
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


def test_every_event_of_a_job_is_received_and_kopf_writes_to_none(monkeypatch: pytest.MonkeyPatch) -> None:
    received: list[Any] = []
    monkeypatch.setattr(job_watch, "credentials", lambda: "who we are")
    registry = job_watch._registry(received.append)
    (handler,) = registry._watching.get_all_handlers()
    assert (handler.selector.group, handler.selector.any_name) == ("ddpjob.dev", "ddpjobs")
    asyncio.run(handler.fn(event={"type": "ADDED"}, name="digits"))
    assert received == [{"type": "ADDED"}]
    (login,) = registry._activities.get_all_handlers()
    assert login.fn() == "who we are"
    assert not registry._changing.get_all_handlers()


def test_a_job_is_forgotten_in_the_version_in_which_it_was_deleted() -> None:
    heard: list[Any] = []
    jobs: Any = SimpleNamespace(update=heard.append, forget=lambda *what: heard.append(what))
    seen = read({**a_manifest(version=7), "spec": {}, "status": {}}, JobObject)
    for kind in (None, "ADDED", "MODIFIED", "DELETED"):
        job_watch._update(jobs, kind, seen)
    assert heard == [seen, seen, seen, (("team", name_of()), "pod-0-1", 7)]


@pytest.mark.timeout(60)
@pytest.mark.parametrize(("namespaces", "everywhere"), [([], True), (["team"], False)])
def test_kopf_neither_writes_nor_looks_around_and_ends_when_it_is_to_choose_anew(
    namespaces: list[str], monkeypatch: pytest.MonkeyPatch, *, everywhere: bool
) -> None:
    began: dict[str, Any] = {}

    async def kopf_operator(**how: Any) -> None:
        began.update(how)
        await how["stop_flag"].wait()

    async def choose(end: Callable[[], None]) -> list[str]:
        end()
        return namespaces

    monkeypatch.setattr(job_watch.kopf, "operator", kopf_operator)
    registry: Any = object()
    asyncio.run(job_watch._operator(registry, choose))
    settings = began["settings"]
    assert (settings.posting.enabled, settings.scanning.disabled) == (False, True)
    assert settings.watching.chunk_size == job_watch.CHUNK
    assert settings.queueing.idle_timeout == job_watch.IDLE_SECONDS
    assert (began["standalone"], began["clusterwide"], began["namespaces"]) == (True, everywhere, namespaces)
    assert began["registry"] is registry
    difference, progress = settings.persistence.diffbase_storage, settings.persistence.progress_storage
    assert difference.build(body={"spec": {}}) == {}
    assert difference.fetch(body={}) is progress.fetch(key="a", body={}) is None
    assert progress.clear(essence={"a": 1}) == {"a": 1}


def test_where_the_cluster_has_no_ddpjobs_any_more_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen: list[Any] = []
    monkeypatch.setattr(job_watch, "_watch", lambda _, choose: chosen.append(choose))

    async def choose(_: object) -> list[str]:
        return []

    with pytest.raises(job_watch.UninstalledError, match=r"^404: the cluster no longer serves DDPJobs"):
        asyncio.run(job_watch.watch(Store(lambda _: None).jobs, choose))
    with pytest.raises(job_watch._LoopClosedError):
        asyncio.run(chosen[0](lambda: None))
