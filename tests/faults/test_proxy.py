"""The proxy breaks exactly what it is told to: which requests reach the server, and what happens to the operator."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest
from aiohttp import web

from tests.support.waiting import patience

from .faults import Answer, Armed, Crash, Drop, Effect, Fault, Gone, HalfOpen, Hang, Lag, Lost, On, Reset, Truncate
from .proxy import Proxy

PODS = "/api/v1/namespaces/team/pods"
TORN = 0
"""Stands for a missing answer, in place of a status."""


class Server:
    """A small API server. It records requests, and its watches report three pods."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    async def serve(self, request: web.BaseRequest) -> web.StreamResponse:
        if "watch" not in request.query:
            self.heard.append(request.method)
            return web.json_response({"kind": "Pod"})
        response = web.StreamResponse()
        await response.prepare(request)
        for rank in range(3):
            metadata = {"namespace": "team", "name": f"pod-{rank}", "labels": _labels(rank)}
            event = {"type": "ADDED", "object": {"metadata": metadata, "spec": {}}}
            await response.write(json.dumps(event).encode() + b"\n")
        await asyncio.sleep(0.5)
        return response


def _labels(rank: int) -> dict[str, str]:
    return {"ddpjob.dev/node": str(rank), "ddpjob.dev/incarnation": "1"}


@asynccontextmanager
async def _between(server: Server, *faults: Fault) -> AsyncIterator[tuple[Proxy, aiohttp.ClientSession]]:
    """Starts the proxy in front of the server, with these faults, and yields it with a client session."""
    runner = web.ServerRunner(web.Server(server.serve))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    upstream = aiohttp.ClientSession(f"http://127.0.0.1:{runner.addresses[0][1]}")
    proxy = Proxy(upstream)
    way = await proxy.start()
    asks = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60))
    proxy.arm(*map(Armed, faults))
    try:
        yield proxy, asks
    finally:
        for one in (asks, upstream):
            await one.close()
        await way.cleanup()
        await runner.cleanup()


async def _status(asks: aiohttp.ClientSession, proxy: Proxy, process: int = 1, method: str = "PATCH") -> int:
    try:
        async with asks.request(method, f"{proxy.url(process)}{PODS}/pod-0") as answer:
            return answer.status
    except aiohttp.ClientError:
        return TORN


@pytest.mark.parametrize(
    ("effect", "status", "heard", "crashes"),
    [
        (None, 200, 1, 0),
        (Answer(409, "Conflict"), 409, 0, 0),
        (Hang(0.5), 200, 1, 0),
        (Crash(after=False), TORN, 0, 1),
        (Crash(after=True), TORN, 1, 1),
        (Reset(), TORN, 0, 0),
        (Lost(), TORN, 1, 0),
    ],
    ids=str,
)
def test_a_write_is_broken_as_it_says(effect: Effect | None, status: int, heard: int, crashes: int) -> None:
    async def asked() -> tuple[int, int, int, float]:
        killed: list[None] = []

        async def crash() -> None:
            killed.append(None)

        server = Server()
        faults = [Fault(On("patch", "pods"), effect)] if effect else []
        async with _between(server, *faults) as (proxy, asks):
            proxy.crash = crash
            begun = proxy._now()
            said = await _status(asks, proxy)
            return said, len(server.heard), len(killed), proxy._now() - begun

    *came, took = asyncio.run(asked())
    assert came == [status, heard, crashes]
    assert took >= 0.5 if isinstance(effect, Hang) else took < patience(0.5)


def test_only_what_is_meant_is_broken_and_as_often_as_it_says() -> None:
    async def asked() -> list[int]:
        fault = Fault(On("patch", "pods", nth=2, times=2), Answer(500, "InternalError"))
        async with _between(Server(), fault) as (proxy, asks):
            others = [await _status(asks, proxy, method="GET")]
            return others + [await _status(asks, proxy) for _ in range(4)]

    assert asyncio.run(asked()) == [200, 200, 500, 500, 200]


def test_what_a_killed_process_still_asks_for_is_never_done() -> None:
    async def asked() -> tuple[list[int], list[str]]:
        server = Server()
        async with _between(server) as (proxy, asks):
            proxy.hang_up(1)
            return [await _status(asks, proxy, process) for process in (1, 2)], server.heard

    assert asyncio.run(asked()) == ([TORN, 200], ["PATCH"])


A, B, C = (f"ADDED pod-{rank}" for rank in range(3))


@pytest.mark.parametrize(
    ("effect", "told"),
    [
        (None, [A, B, C]),
        (Drop(), [A, C]),
        (Gone(), [A, "ERROR 410"]),
        (Truncate(), [A, "half a line"]),
        (HalfOpen(), [A, "nothing more"]),
        (Lag(2), [A]),
    ],
    ids=str,
)
def test_a_watch_is_broken_as_it_says_from_its_second_event_on(effect: Effect | None, told: list[str]) -> None:
    async def watched() -> list[str]:
        faults = [Fault(On("event", "pods", place=(1, 1)), effect)] if effect else []
        async with _between(Server(), *faults) as (proxy, asks):
            silence = 1.5 if isinstance(effect, HalfOpen) else 60
            return [line async for line in _lines(asks, f"{proxy.url(1)}{PODS}?watch=true", silence)]

    assert asyncio.run(watched()) == told


async def _lines(asks: aiohttp.ClientSession, url: str, silence: float) -> AsyncIterator[str]:
    async with asks.get(url) as answer:
        while True:
            try:
                line = await asyncio.wait_for(answer.content.readline(), silence)
            except TimeoutError:
                yield "nothing more"
                return
            if not line:
                return
            if not line.endswith(b"\n"):
                yield "half a line"
                return
            event = json.loads(line)
            yield f"{event['type']} {event['object'].get('code') or event['object']['metadata']['name']}"
