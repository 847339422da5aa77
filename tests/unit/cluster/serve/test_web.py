"""The operator's ports, over real connections."""

import asyncio
import resource
import socket
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from http import HTTPStatus
from typing import Any
from unittest.mock import Mock

import aiohttp
import pytest
from ddpjob_operator.cluster import metrics_access
from ddpjob_operator.cluster.kube.api_client import ApiError
from ddpjob_operator.cluster.metrics_access import MetricsAccess
from ddpjob_operator.cluster.serve import fair_server, web
from ddpjob_operator.cluster.serve.fair_server import WITH_REQUEST, WITHOUT_REQUEST, raise_open_files_limit
from ddpjob_operator.cluster.serve.web import Access, serve
from prometheus_client import CollectorRegistry, Metric

from tests.support.files import many_files, open_files
from tests.support.waiting import patience

DEADLINE_SECONDS = 60
STRANGER = "127.0.0.9"
REQUEST = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"

LONG = 16 << 20
"""Bytes of an answer that no system keeps for somebody who does not read it."""

linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has all of 127.0.0.0/8")


@pytest.fixture(autouse=True)
def _many_files() -> Iterator[None]:
    with many_files():
        yield


@asynccontextmanager
async def pages(access: Access | None = None) -> AsyncIterator[tuple[int, int]]:
    async with AsyncExitStack() as stack, asyncio.timeout(patience(DEADLINE_SECONDS)):
        yield await serve(
            stack, (0, 0), ready=lambda: "", problems=lambda: "beside", jobs=CollectorRegistry, access=access
        )


async def probed(port: int, path: str = "/healthz", **headers: str) -> int:
    """The status of a page, on a connection of its own, as the kubelet asks."""
    async with (
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True)) as client,
        client.get(f"http://127.0.0.1:{port}{path}", headers=headers) as answer,
    ):
        await answer.read()
        return answer.status


def hold(stack: AsyncExitStack, port: int, number: int) -> list[socket.socket]:
    """So many connections of a stranger's, from another process's descriptors: these count here, too."""
    held = []
    for _ in range(number):
        there = socket.socket()
        stack.callback(there.close)
        there.bind((STRANGER, 0))
        there.connect(("127.0.0.1", port))
        held.append(there)
    return held


@linux
@pytest.mark.parametrize("words", [b"", b"GET /he", REQUEST], ids=["silent", "half a request", "answered"])
def test_whoever_holds_many_connections_keeps_no_other_host_out(words: bytes) -> None:
    async def test() -> None:
        async with pages() as ports, AsyncExitStack() as stack:
            for port in ports:
                for _ in range(WITHOUT_REQUEST + WITH_REQUEST):
                    (there,) = hold(stack, port, 1)
                    there.sendall(words)
                    await asyncio.sleep(0)
                assert [await probed(port, "/readyz") for _ in range(5)] == [200] * 5

    asyncio.run(test())


def test_of_as_many_connections_as_there_may_be_none_is_closed_and_of_more_the_oldest_of_the_busiest_host() -> None:
    connections, closed = fair_server._Connections(4), list[str]()

    def connect(host: str, name: str) -> None:
        connections.add(host, Mock(abort=lambda: closed.append(name)))

    for host, name in (("a", "a1"), ("b", "b1"), ("b", "b2"), ("a", "a2")):
        connect(host, name)
    assert closed == []
    connect("b", "b3")
    assert closed == ["b1"]
    connect("c", "c1")
    connect("c", "c2")
    assert closed == ["b1", "a1", "b2"]


@linux
def test_many_hosts_that_say_nothing_keep_nobody_out() -> None:
    async def test() -> None:
        async with pages() as (port, _), AsyncExitStack() as stack, aiohttp.ClientSession() as client:
            url = f"http://127.0.0.1:{port}/healthz"
            async with client.get(url) as answer:
                await answer.read()
            for number in range(WITHOUT_REQUEST + 10):
                there = socket.socket()
                stack.callback(there.close)
                there.bind((f"127.0.{1 + number // 250}.{1 + number % 250}", 0))
                there.connect(("127.0.0.1", port))
                await asyncio.sleep(0)
            assert await probed(port) == 200
            async with client.get(url) as answer:
                assert answer.status == 200, "on the connection that it has"

    asyncio.run(test())


@linux
def test_whoever_does_not_read_what_they_asked_for_holds_no_more_places_than_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fair_server, "WITH_REQUEST", 4)
    monkeypatch.setattr(web, "generate_latest", lambda _: b"x" * LONG)

    async def test() -> None:
        async with pages() as (port, _), AsyncExitStack() as stack:
            before = open_files()
            for there in hold(stack, port, 20):
                there.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
                await asyncio.to_thread(there.recv, 1)
            while open_files() > before + 20 + 4:
                assert await probed(port) == 200

    asyncio.run(test())


def test_whoever_asks_for_the_metrics_while_their_text_is_made_gets_the_same_text() -> None:
    made = []

    class Slow:
        def __init__(self) -> None:
            made.append(self)

        def collect(self) -> Iterator[Metric]:
            time.sleep(0.2)
            yield from ()

    async def test() -> None:
        async with AsyncExitStack() as stack:
            port, _ = await serve(stack, (0, 0), ready=lambda: "", problems=lambda: "", jobs=Slow)
            gone = asyncio.create_task(probed(port, "/metrics"))
            await asyncio.sleep(0.1)
            gone.cancel()
            assert set(await asyncio.gather(*(probed(port, "/metrics") for _ in range(20)))) == {HTTPStatus.OK}
            before = len(made)
            assert before < 10
            await probed(port, "/metrics")
            assert len(made) == before + 1

    asyncio.run(test())


def test_the_kubelets_port_has_what_it_asks_and_no_metrics() -> None:
    async def test() -> None:
        async with pages() as (port, probes):
            assert [await probed(probes, path) for path in ("/healthz", "/readyz", "/metrics")] == [200, 200, 404]
            assert [await probed(port, path) for path in ("/healthz", "/readyz", "/metrics")] == [200, 200, 200]

    asyncio.run(test())


def test_a_connection_on_which_nothing_is_asked_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ddpjob_operator.cluster.serve.web.PROBE_IDLE_SECONDS", 0.1)

    async def test() -> None:
        async with pages() as (_, probes):
            for words in (b"", b"GET /he", REQUEST):
                reader, writer = await asyncio.open_connection("127.0.0.1", probes)
                writer.write(words)
                assert (b"200 OK" in await reader.read()) == (words == REQUEST)
                writer.close()

    asyncio.run(test())


def test_what_is_still_connected_at_the_end_is_closed() -> None:
    async def test() -> None:
        async with pages() as (port, _):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(REQUEST)
            assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        async with asyncio.timeout(patience(DEADLINE_SECONDS)):
            await reader.read()
        writer.close()

    asyncio.run(test())


def test_the_limit_on_open_files_is_raised_as_far_as_it_may_be() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(512, hard), hard))
    try:
        raise_open_files_limit()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


class Reviewing:
    """An API server that knows two tokens."""

    def __init__(self) -> None:
        self.asked = 0
        self.away = False

    async def user_of(self, token: str) -> dict[str, Any] | None:
        self.asked += 1
        await asyncio.sleep(0)
        if self.away:
            raise ApiError(0, "NoAnswer", "no answer")
        return {"username": token} if token in {"prometheus", "stranger"} else None

    async def may_get(self, user: dict[str, Any], path: str) -> bool:
        return (user["username"], path) == ("prometheus", "/metrics")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"Authorization": "Basic cHJvbWV0aGV1cw=="}, 401),
        ({"Authorization": "Bearer made-up"}, 401),
        ({"Authorization": "Bearer stranger"}, 403),
        ({"Authorization": "Bearer prometheus"}, 200),
        ({"Authorization": "bearer prometheus"}, 200),
    ],
)
def test_metrics_are_for_those_whom_the_api_server_permits_them(headers: dict[str, str], status: int) -> None:
    async def test() -> None:
        api: Any = Reviewing()
        async with pages(MetricsAccess(api)) as (port, probes):
            for _ in range(2):
                assert await probed(port, "/metrics", **headers) == status
            assert await probed(probes, "/readyz") == 200, "the kubelet has no token"
            bearer = headers.get("Authorization", "").lower().startswith("bearer ")
            assert api.asked == bearer, "an answer holds for a while, and without a token there is nothing to ask"

    asyncio.run(test())


def test_an_api_server_that_does_not_answer_permits_nobody_and_is_asked_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def test() -> None:
        api: Any = Reviewing()
        access = MetricsAccess(api)
        api.away = True
        assert [await access("prometheus") for _ in range(3)] == [HTTPStatus.SERVICE_UNAVAILABLE] * 3
        assert len(caplog.messages) == 1, "anybody can ask as often as they like"
        api.away = False
        assert await access("prometheus") is HTTPStatus.OK

    asyncio.run(test())


def test_an_answer_that_takes_too_long_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_access, "ANSWER_SECONDS", 0.01)

    async def test() -> None:
        api: Any = Reviewing()
        api.user_of = lambda _: asyncio.sleep(60)
        async with asyncio.timeout(patience(DEADLINE_SECONDS)):
            waited = await asyncio.gather(*(MetricsAccess(api)("prometheus") for _ in range(10)))
        assert waited == [HTTPStatus.SERVICE_UNAVAILABLE] * 10

    asyncio.run(test())


def test_of_many_tokens_the_one_that_was_asked_about_last_is_remembered_longest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(metrics_access, "KEPT", 2)
    monkeypatch.setattr(metrics_access, "REFUSAL_SECONDS", 0.0)

    async def test() -> None:
        api: Any = Reviewing()
        access = MetricsAccess(api)
        for token, kept_seconds in (("prometheus", 0), ("made up", 0), ("prometheus", 60), ("stranger", 60)):
            monkeypatch.setattr(metrics_access, "KEPT_SECONDS", kept_seconds)
            await access(token)
        await access("prometheus")
        assert api.asked == 4

    asyncio.run(test())


def test_strangers_with_made_up_tokens_take_little_of_the_api_servers_time_and_hold_nobody_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(metrics_access, "KEPT", 3)

    async def test() -> None:
        api: Any = Reviewing()
        access = MetricsAccess(api)
        strangers = [asyncio.create_task(access(f"made up {number}")) for number in range(100)]
        await asyncio.sleep(0)
        last = asyncio.create_task(access("stranger"))
        for _ in range(10):
            await asyncio.sleep(0)
        assert api.asked == metrics_access.AT_ONCE, "a refusal keeps its place for a while"
        monkeypatch.setattr(metrics_access, "REFUSAL_SECONDS", 0.0)
        assert await access("prometheus") is HTTPStatus.OK
        assert await last is HTTPStatus.FORBIDDEN
        assert [await one for one in strangers] == [HTTPStatus.UNAUTHORIZED] * 100
        assert len(access._answers) == 3

    asyncio.run(test())
