"""What the operator as a whole makes of a namespace that is closed to it, and of an API server that is slow."""

import asyncio
import contextlib
import logging
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import chain, pairwise
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import aiohttp
import pytest
from ddpjob_operator.cluster import operator as module
from ddpjob_operator.cluster.kube.api_client import (
    DDPJOBS,
    ApiClient,
    ApiError,
    FencedError,
    Resource,
)
from ddpjob_operator.cluster.kube.clock import Clock
from ddpjob_operator.cluster.kube.connection import Connection
from ddpjob_operator.cluster.kube.objects import ObjectMeta, read
from ddpjob_operator.cluster.operator import Operator
from ddpjob_operator.cluster.optional_api import OptionalApi
from ddpjob_operator.cluster.options import parse
from ddpjob_operator.cluster.serve.metrics import LEADER, ROUNDS
from ddpjob_operator.engine import KUEUE_WORKLOAD, Event

from tests.support import virtual_time
from tests.support.ports import hold_port
from tests.support.waiting import patience


class Closed(ApiClient):
    """An API server that shows a job in each namespace but those that are closed. It has no PodGroups."""

    def __init__(self, status: int) -> None:
        self.closed: set[str] = set()
        self.status = status
        self.kinds = frozenset[str]()

    async def list(self, resource: Resource[Any], namespace: str | None, *_: Any, **_kwargs: Any) -> Any:
        if namespace in self.closed:
            raise ApiError(self.status, "Forbidden", f"nobody may list in {namespace}")
        job = {"metadata": {"name": "digits", "namespace": namespace, "uid": f"{namespace}", "resourceVersion": "1"}}
        job["status"] = {"attempt": 1}
        return [read(job, resource.type)] if resource is DDPJOBS else [], 1

    async def served(self, _: str) -> frozenset[str]:
        return self.kinds

    async def rules(self, _: str) -> Any:
        return [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}], False


NOWHERE: Any = SimpleNamespace(clock=SimpleNamespace(now=None), server="here")


def an_operator(*flags: str, connection: Connection = NOWHERE) -> Operator:
    return Operator(parse(["--no-leader-elect", *flags]), connection)


@asynccontextmanager
async def alive(*flags: str) -> AsyncIterator[Operator]:
    operator = an_operator(*flags)
    try:
        yield operator
    finally:
        await operator._supervisors.close()
        await operator._witnesses.close()


def use(operator: Operator, api: ApiClient) -> None:
    """Has it list there, and look there for what not every cluster has."""
    operator._api = api
    for reflector in chain.from_iterable(operator._reflectors.values()):
        reflector._api = api
    operator._optional = tuple(OptionalApi(api, one.feature) for one in operator._optional)


def listing(*namespaces: str, rounds: tuple[set[str], ...], status: int = 403) -> list[str]:
    """The namespaces whose jobs are known after as many lists, each with these namespaces closed."""

    async def play() -> list[str]:
        operator = an_operator(*(f"--namespace={one}" for one in namespaces))
        api = Closed(status)
        use(operator, api)
        async with AsyncExitStack() as stack:
            stack.push_async_callback(operator._supervisors.close)
            stack.push_async_callback(operator._witnesses.close)
            for api.closed in rounds:
                await operator._list()
        return sorted(namespace for (namespace, _), _ in operator._store.jobs.all())

    return asyncio.run(play())


def test_what_the_lists_of_a_resync_leave_behind_is_collected_once_they_are_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done = list[str]()
    monkeypatch.setattr(module.gc, "collect", lambda: done.append("collected"))

    async def play() -> None:
        operator = an_operator()
        async with AsyncExitStack() as stack:
            stack.push_async_callback(operator._supervisors.close)
            stack.push_async_callback(operator._witnesses.close)

            async def read_all(**_: bool) -> None:
                done.append("listed")

            monkeypatch.setattr(operator, "_list", read_all)
            await operator._resync(spread=0.0, anew=False)

    asyncio.run(play())
    assert done == ["listed", "collected"]


def test_a_list_that_fails_is_tried_again_later_each_time_and_not_before_the_server_wants_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def play() -> None:
        operator, moments, clock = an_operator(), list[float](), asyncio.get_running_loop().time

        async def fail(**_: bool) -> None:
            moments.append(clock())
            if len(moments) <= len(LEAST):
                raise ApiError(429, "TooManyRequests", "not now", 7.0 if len(moments) == len(LEAST) else None)

        monkeypatch.setattr(operator, "_list", fail)
        async with AsyncExitStack() as stack:
            stack.push_async_callback(operator._supervisors.close)
            stack.push_async_callback(operator._witnesses.close)
            await operator._resync(spread=0.0, anew=False)
        pauses = (after - before for before, after in pairwise(moments))
        assert all(least <= wait <= 1.5 * least + 0.1 for least, wait in zip(LEAST, pauses, strict=True))

    virtual_time.run(play())


LEAST = (0.2, 0.4, 0.8, 7.0)


def test_a_resync_has_jobs_at_rest_looked_at_only_once_the_cluster_serves_something_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def play() -> list[list[str]]:
        operator, api = an_operator("--namespace=blue", "--namespace=green"), Closed(403)
        use(operator, api)
        wanted, looks = list[str](), list[list[str]]()

        async def resync() -> None:
            wanted.clear()
            await operator._resync(spread=0.0, anew=True)
            looks.append([*wanted])

        monkeypatch.setattr(operator._queue, "mark_in", lambda key, _: wanted.append(key[0]))
        async with AsyncExitStack() as stack:
            stack.push_async_callback(operator._supervisors.close)
            stack.push_async_callback(operator._witnesses.close)
            await resync()
            operator._reconciler._memories["blue", "digits"].at_rest = True
            await resync()
            api.kinds = frozenset({KUEUE_WORKLOAD.plural})
            await resync()
            await resync()
        return looks

    both = ["blue", "green"]
    assert asyncio.run(play()) == [both, ["green"], both, ["green"]]


def test_a_closed_namespace_hides_no_other_and_the_log_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert listing("blue", "gone", "green", rounds=({"gone"}, {"gone"})) == ["blue", "green"]
    assert caplog.messages == ["namespace gone: nobody may list in gone; other namespaces are not affected"]


def test_a_list_that_has_expired_halfway_is_a_failure_and_closes_no_namespace() -> None:
    with pytest.raises(ApiError, match="nobody may"):
        listing("blue", "gone", rounds=({"gone"},), status=410)


def test_a_namespace_that_is_entered_is_read_as_a_whole_and_its_jobs_need_no_other_look() -> None:
    async def play() -> tuple[int, list[bool]]:
        operator = an_operator("--namespace=blue")
        use(operator, Closed(403))
        async with AsyncExitStack() as stack:
            stack.push_async_callback(operator._supervisors.close)
            stack.push_async_callback(operator._witnesses.close)
            await operator._enter_namespace("blue")
            before = len(operator._store.jobs.all())
            operator._leading = True
            await operator._enter_namespace("blue")
            jobs = operator._store.jobs.all()
        return before, [operator._reconciler._memory(key, stored).saw_pods for key, stored in jobs]

    assert asyncio.run(play()) == (0, [True]), "one that stands by reads nothing"


class Away(ApiClient):
    """An API server that does not answer."""

    def __init__(self) -> None:
        pass

    async def served(self, _: Resource[Any]) -> bool:
        raise ApiError(0, "NoAnswer", "no answer")


def test_it_is_alive_however_long_a_job_waits_for_the_api_server() -> None:
    """A kubelet that killed it for that would take away what goes on as well, and the next one would wait anew."""

    async def play() -> tuple[int, str]:
        port = hold_port()
        operator = an_operator(f"--port={port}", "--probe-port=0")
        operator._unfenced = Away()
        operator._queue.open()
        operator._queue.mark(("team", "digits"))
        await operator._queue.take()
        running = asyncio.create_task(operator.run())
        try:
            async with aiohttp.ClientSession() as session:
                return await answer(session, f"http://127.0.0.1:{port}/healthz")
        finally:
            running.cancel()

    assert asyncio.run(play()) == (200, "ok\n")


def test_a_stop_does_not_wait_for_all_that_a_large_job_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "IN_HAND_SECONDS", 0.05)

    async def play() -> None:
        operator, key = an_operator(), ("team", "digits")
        operator._queue.open()
        operator._queue.mark(key)
        await operator._queue.take()

        async def endless_round() -> None:
            with contextlib.suppress(FencedError):
                while True:
                    operator._api._fence()  # As before each write.
                    await asyncio.sleep(0.001)
            operator._queue.failed(key)

        async with AsyncExitStack() as stack, asyncio.timeout(patience(2)):
            stack.push_async_callback(operator._supervisors.close)
            stack.push_async_callback(operator._witnesses.close)
            going_on = asyncio.create_task(endless_round())
            await operator._end_rounds()
            await going_on

    asyncio.run(play())


class Writable(Connection):
    """To an API server that takes whatever may be written."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.written: list[str] = []

    @property
    def server(self) -> str:
        return "here"

    async def send(self, *request: Any, **_: Any) -> tuple[int, bytes, None]:
        method, path, _data, check = request
        check()
        self.written.append(f"{method} {path}")
        return 201, b'{"metadata": {}}', None


@pytest.mark.parametrize(("leads", "written"), [(True, 1), (False, 0)], ids=["the Lease is held", "it is lost"])
def test_what_was_announced_before_a_stop_is_written_as_long_as_the_lease_is_held(
    leads: bool,  # noqa: FBT001  A table.
    written: int,
) -> None:
    async def play() -> list[str]:
        connection = Writable()
        operator = an_operator(connection=connection)
        operator._elector = SimpleNamespace(leads=leads)
        job = ObjectMeta(name="digits", namespace="team", uid="uid-1")
        operator._recorder.record(job, Event(warning=False, reason="Running", message="It runs"))
        operator._leaving = True
        with pytest.raises(FencedError):
            operator._api._fence()
        writing = asyncio.create_task(operator._recorder.run())
        async with AsyncExitStack() as stack, asyncio.timeout(patience(2)):
            stack.push_async_callback(operator._supervisors.close)
            stack.push_async_callback(operator._witnesses.close)
            await operator._recorder.drained()
        writing.cancel()
        return connection.written

    assert len(asyncio.run(play())) == written


async def answer(session: aiohttp.ClientSession, url: str) -> tuple[int, str]:
    """What is said there, once somebody listens."""
    while True:
        try:
            async with session.get(url) as response:
                return response.status, await response.text()
        except aiohttp.ClientConnectionError:
            await asyncio.sleep(0.01)


def test_no_two_of_what_it_follows_have_the_same_name() -> None:
    async def names() -> list[str]:
        operator = an_operator("--namespace=blue", "--namespace=green")
        async with AsyncExitStack() as stack:
            stack.push_async_callback(operator._supervisors.close)
            stack.push_async_callback(operator._witnesses.close)
            return [str(one) for one in chain.from_iterable(operator._reflectors.values())]

    found = asyncio.run(names())
    assert len(set(found)) == len(found) > 0, "of two tasks of one name only one would run"


class Starting(ApiClient):
    """An API server that answers the questions of an operator that starts, in turn."""

    def __init__(self, *answers: Any) -> None:
        self.answers = [*answers]

    async def served(self, _: str) -> Any:
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


REFUSED = ApiError(403, "Forbidden", "who are you")
AWAY = ApiError(503, "ServiceUnavailable", "not now")
INSTALLED = frozenset({"ddpjobs"})


async def starts(operator: Operator, lacking: list[str], *answers: Any) -> list[str]:
    """What /readyz says after each of these answers, and in the end."""
    said = list[str]()

    async def pause(_: float) -> None:
        said.append(operator._not_ready)

    async def begin() -> list[str]:
        return lacking

    operator._unfenced = Starting(*answers)
    operator._namespaces.begin = begin  # type: ignore[method-assign]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module.asyncio, "sleep", pause)
        try:
            await operator._until_installed()
        finally:
            await operator._supervisors.close()
            await operator._witnesses.close()
    return [*said, operator._not_ready]


def test_an_operator_waits_for_its_server_and_its_type_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    async def play() -> list[str]:
        return await starts(an_operator(), [], AWAY, AWAY, frozenset[str](), INSTALLED)

    away, crd = "waiting for the API server here: not now", "waiting for the type DDPJob: apply deploy/crd.yaml, or"
    *waited, last = asyncio.run(play())
    assert [said[: len(crd)] for said in waited] == [away, away, crd]
    assert last == "starting"
    assert [message[: len(crd)] for message in caplog.messages] == [away, crd], "what is no news is not said again"


@pytest.mark.parametrize(
    ("lacking", "answer", "why"),
    [
        ([], REFUSED, "The API server here refuses the operator's requests: who are you"),
        (["list pods", "watch pods"], INSTALLED, "The operator lacks rights that it needs: list pods; watch pods"),
    ],
)
def test_an_operator_does_not_wait_for_what_does_not_come(lacking: list[str], answer: Any, why: str) -> None:
    async def play() -> None:
        with pytest.raises(module.StoppedError) as stopped:
            await starts(an_operator(), lacking, AWAY, answer)
        assert str(stopped.value) == why

    asyncio.run(play())


def test_a_port_that_another_program_has_is_named() -> None:
    async def play(port: int) -> None:
        with pytest.raises(module.StoppedError, match=rf"{port}.*: Address already in use"):
            await an_operator(f"--port={port}", "--probe-port=0").run()

    with socket.create_server(("", 0)) as other:
        asyncio.run(play(other.getsockname()[1]))


@pytest.mark.parametrize(("seconds", "spread"), [(10, 1), (200, 20), (300, 30), (301, 30), (86400, 30)])
def test_who_leads_lists_all_at_once_and_later_again_in_a_while_that_is_a_part_of_the_interval(
    seconds: int, spread: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[object] = []

    async def resync(spread: float, *, anew: bool) -> None:
        heard.append((spread, anew))
        if len(heard) == 5:
            raise EOFError

    async def pause(seconds: float) -> None:
        heard.append(seconds)

    async def play() -> None:
        operator = an_operator(f"--resync-seconds={seconds}")
        operator._elector = None
        monkeypatch.setattr(operator, "_resync", resync)
        monkeypatch.setattr(operator._namespaces, "check_soon", lambda: None)
        monkeypatch.setattr(module.asyncio, "sleep", pause)
        with pytest.raises(EOFError):
            await operator._lead()
        assert operator._listed.is_set()
        assert operator._not_ready == ""
        operator._queue.mark(("team", "digits"))
        async with asyncio.timeout(patience(2)):
            assert await operator._queue.take() == ("team", "digits"), "rounds may begin"
        await operator._supervisors.close()
        await operator._witnesses.close()

    asyncio.run(play())
    later = (pytest.approx(spread), True)
    assert heard == [(0, False), seconds, later, seconds, later]


@pytest.mark.parametrize(
    ("outcome", "label", "ends"),
    [
        (250, "ok", ("done", pytest.approx(0.025))),
        (ApiError(503, "ServiceUnavailable", "not now", 7.0), "error", ("failed", 7.0)),
        (ApiError(503, "ServiceUnavailable", "not now"), "error", ("failed", 0.0)),
        (FencedError("no longer the leader"), "fenced", ("failed",)),
        (ZeroDivisionError("oh"), "bug", ("failed",)),
    ],
    ids=["it succeeds", "the server wants a pause", "the server refuses", "the Lease is lost", "a bug"],
)
def test_a_round_is_counted_and_tried_again_by_how_it_has_ended(outcome: Any, label: str, ends: tuple[Any]) -> None:
    calls = list[tuple[Any, ...]]()

    async def play(operator: Operator) -> None:
        queue: Any = SimpleNamespace(
            done=lambda _, rest: calls.append(("done", rest)),
            failed=lambda _, *at_least: calls.append(("failed", *at_least)) or 1.0,
        )
        operator._queue, operator._reconciler.round = queue, AsyncMock(side_effect=[outcome])  # type: ignore[method-assign]
        before = {one: ROUNDS.labels(one)._value.get() for one in ("ok", "error", "fenced", "bug")}
        await operator._round(("team", "digits"))
        after = {one: ROUNDS.labels(one)._value.get() for one in before}
        assert after == before | {label: before[label] + 1}

    run(play)
    assert calls == [ends]


def run(play: Callable[[Operator], Awaitable[None]], *flags: str) -> None:
    async def with_one() -> None:
        async with alive(*flags) as operator, asyncio.timeout(patience(5)):
            await play(operator)

    asyncio.run(with_one())


def test_rounds_run_beside_each_other() -> None:
    begun, both = list[Any](), asyncio.Event()

    async def a_round(key: Any) -> None:
        begun.append(key)
        if len(begun) == 2:
            both.set()
        await both.wait()

    async def play(operator: Operator) -> None:
        operator._round = a_round  # type: ignore[method-assign]
        for name in "ab":
            operator._queue.mark(("team", name))
        operator._queue.open()
        rounds = asyncio.create_task(operator._run_rounds())
        await both.wait()
        rounds.cancel()

    run(play)
    assert begun == [("team", "a"), ("team", "b")]


def test_what_belongs_to_jobs_is_followed_once_all_is_listed() -> None:
    async def play(operator: Operator) -> None:
        reflector = SimpleNamespace(run=AsyncMock())
        following = asyncio.create_task(operator._run_reflector(reflector))  # type: ignore[arg-type]
        await asyncio.sleep(0)
        assert not reflector.run.called
        operator._listed.set()
        await following
        assert reflector.run.called

    run(play)


def test_a_standby_is_ready_and_asks_what_the_cluster_serves_before_it_is_elected() -> None:
    async def play(operator: Operator) -> None:
        operator._elector = elector = Elector()  # type: ignore[assignment]
        asked = asyncio.Event()

        async def check(_: str | None) -> None:
            asked.set()
            raise AWAY

        operator._check_optional = check  # type: ignore[method-assign]
        operator._resync = resync = AsyncMock()  # type: ignore[method-assign]
        LEADER.set(0)
        leading = asyncio.create_task(operator._lead())
        await asked.wait()
        assert (operator._not_ready, operator._leading, LEADER._value.get()) == ("", False, 0)
        assert not resync.called
        elector.elected.set()
        await operator._listed.wait()
        assert (operator._leading, LEADER._value.get()) == (True, 1)
        leading.cancel()

    run(play)


class Elector:
    """Holds the Lease."""

    leads = True

    def __init__(self, done: list[str] | None = None, released: Exception | None = None) -> None:
        self.elected = asyncio.Event()
        self._done, self._released = done, released

    async def release(self) -> None:
        assert self._done is not None
        self._done.append("released")
        if self._released:
            raise self._released


async def never() -> None:
    await asyncio.Event().wait()


@pytest.mark.parametrize("elected", [True, False])
@pytest.mark.parametrize("writes", [True, False], ids=["events are written", "nobody takes events"])
@pytest.mark.parametrize("error", [None, AWAY])
def test_a_stop_ends_rounds_writes_events_and_gives_the_lease_away_in_this_order(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    error: Exception | None,
    *,
    writes: bool,
    elected: bool,
) -> None:
    done = list[str]()
    monkeypatch.setattr(module, "EVENTS_SECONDS", 0.01)

    async def play(operator: Operator) -> None:
        operator._elector = Elector(done, error) if elected else None  # type: ignore[assignment]
        operator._queue.close = AsyncMock(side_effect=lambda: done.append("rounds"))  # type: ignore[method-assign]
        written = AsyncMock(side_effect=lambda: done.append("events"))
        operator._recorder.drained = written if writes else never  # type: ignore[method-assign]
        await operator._finish()
        assert operator._not_ready == "stopping"
        assert operator._may_write()

    run(play)
    assert done == ["rounds", *["events"] * writes, *["released"] * elected]
    assert any("not now" in message for message in caplog.messages) is (elected and error is not None)


def test_a_stop_that_takes_too_long_is_given_up(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "STOP_SECONDS", 0.01)

    async def play(operator: Operator) -> None:
        operator._queue.close = never  # type: ignore[method-assign]
        await operator._finish()

    run(play)
    assert caplog.messages == ["stopped before everything was finished: it took more than 0.01 s"]


def test_it_works_until_it_is_told_to_stop_and_then_finishes_what_it_has_begun() -> None:
    async def play(operator: Operator) -> None:
        begun, ended = asyncio.Event(), list[str]()

        async def work() -> None:
            begun.set()
            try:
                await never()
            finally:
                ended.append("work")

        operator._finish = AsyncMock(side_effect=lambda: ended.append("finished"))  # type: ignore[method-assign]
        running = asyncio.create_task(operator._until_stopped(work()))
        await begun.wait()
        operator._stopping.set()
        await running
        assert ended == ["finished", "work"]

    run(play)


def test_it_ends_with_its_work() -> None:
    async def play(operator: Operator) -> None:
        with pytest.raises(module.StoppedError, match="no rights"):
            await operator._until_stopped(AsyncMock(side_effect=module.StoppedError("no rights"))())

    run(play)


@pytest.mark.parametrize(
    ("part", "error", "said"),
    [
        ("election", None, "The leadership is lost: the Lease could not be renewed in time."),
        ("events", ValueError("oh"), "The task 'events' has ended: oh"),
        ("events", None, "The task 'events' has ended: the reason is unknown"),
        ("events", asyncio.CancelledError(), "The task 'events' has ended: the reason is unknown"),
    ],
)
def test_of_its_parts_none_ends_alone(part: str, error: BaseException | None, said: str) -> None:
    ended = list[str]()

    async def follow() -> None:
        try:
            await never()
        finally:
            ended.append("the others")

    async def play(operator: Operator) -> None:
        operator._until_installed = AsyncMock()  # type: ignore[method-assign]
        operator._elector = SimpleNamespace(run=AsyncMock(side_effect=error) if part == "election" else never)  # type: ignore[assignment]
        operator._recorder.run = AsyncMock(side_effect=error) if part == "events" else never  # type: ignore[method-assign]
        for name in ("_lead", "_run_rounds"):
            setattr(operator, name, follow)
        operator._namespaces.run = never  # type: ignore[method-assign]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, "watch", lambda *_: never())
            with pytest.raises(module.StoppedError) as stopped:
                await operator._work()
            assert str(stopped.value) == said
            assert ended == ["the others"] * 2
            operator._stopping.set()
            await operator._work()

    run(play)


def test_signals_stop_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async def play(operator: Operator) -> None:
        handlers, working = dict[int, Any](), asyncio.Event()

        async def work() -> None:
            working.set()
            await never()

        monkeypatch.setattr(asyncio.get_running_loop(), "add_signal_handler", handlers.__setitem__)
        monkeypatch.setattr(operator, "_work", work)
        monkeypatch.setattr(operator, "_finish", AsyncMock())
        running = asyncio.create_task(operator.run())
        await working.wait()
        assert {*handlers} == {signal.SIGTERM, signal.SIGINT}
        handlers[signal.SIGTERM]()
        await running

    run(play, f"--port={hold_port()}", "--probe-port=0")
