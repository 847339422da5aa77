"""A watch that falls silent and stays open is given up, and followed by another one."""

import asyncio
from pathlib import Path

import pytest
from aiohttp import web
from ddpjob_operator.cluster.kube.api_client import PODS, SILENCE_SECONDS, ApiClient
from ddpjob_operator.cluster.kube.connection import Connection
from ddpjob_operator.cluster.reflector import LONGEST_PAUSE_SECONDS, Reflector
from ddpjob_operator.cluster.store import Store

from tests.support import virtual_time

from .kube.test_connection import a_kubeconfig

EMPTY = {"metadata": {"resourceVersion": "5"}, "items": []}
MINUTE = 60.0
BOOKMARK = b'{"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "7"}}}\n'


class SilentServer:
    """Says in its first watch one thing a minute after it began, and then nothing more; the connection stays."""

    def __init__(self) -> None:
        self.watches: list[tuple[float, str]] = []
        """When, and from which version on."""
        self.again = asyncio.Event()

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answers a list, or a watch."""
        if "watch" not in request.query:
            return web.json_response(EMPTY)
        self.watches.append((asyncio.get_running_loop().time(), request.query["resourceVersion"]))
        response = web.StreamResponse()
        await response.prepare(request)
        if len(self.watches) == 1:
            await asyncio.sleep(MINUTE)
            await response.write(BOOKMARK)
        else:
            self.again.set()
        await asyncio.Event().wait()
        return response


async def followed(config: Path) -> list[tuple[float, str]]:
    """The watches until the second one."""
    server = SilentServer()
    runner = web.ServerRunner(web.Server(server.handle), shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    a_kubeconfig(config, cluster={"server": f"http://127.0.0.1:{runner.addresses[0][1]}"}, user={})
    connection = Connection()
    store = Store(lambda _: None)
    following = asyncio.create_task(Reflector(ApiClient(connection, lambda: True), PODS, "team", store.pods).run())
    try:
        async with asyncio.timeout(10 * SILENCE_SECONDS):
            await server.again.wait()
    finally:
        following.cancel()
        await connection.close()
        await runner.cleanup()
    return server.watches


def test_a_watch_that_falls_silent_goes_on_where_it_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    first, second = virtual_time.run(followed(tmp_path / "config"))
    assert (first[1], second[1]) == ("5", "7")
    waited = second[0] - first[0] - MINUTE
    assert SILENCE_SECONDS <= waited <= SILENCE_SECONDS + LONGEST_PAUSE_SECONDS
