"""A request to a pod's own port, by the protocol in which the API server forwards ports (v4.channel.k8s.io)."""

import asyncio
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from aiohttp import web
from ddpjob_operator.client import Cluster, RefusedError, UnreachableError
from ddpjob_operator.client import cluster as cluster_module
from ddpjob_operator.client.errors import DEBUG
from kubernetes.client.api_client import ApiClient
from kubernetes.client.configuration import Configuration

PATH = "/api/v1/namespaces/team/pods/digits-0/portforward"
PORT = 29501
NAME = PORT.to_bytes(2, "little")
MAY_NOT = 'pods "digits-0" is forbidden: User "jane" cannot get resource "pods/portforward" in API group ""'
FORBIDDEN = {"kind": "Status", "reason": "Forbidden", "message": MAY_NOT, "code": 403}


def answer(status: str, body: str) -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n{body}".encode()


class Server:
    """Forwards to a pod that gives one answer after `seconds`; `error` is what the kubelet reports instead."""

    def __init__(self, said: bytes = b"", error: str = "", refusal: Any = None, seconds: float = 0.0) -> None:
        self.said, self.error, self.refusal, self.seconds = said, error, refusal, seconds
        self.asked = b""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        assert (request.path, request.query["ports"]) == (PATH, str(PORT))
        assert request.headers["authorization"] == "Bearer mine"
        if self.refusal is not None:
            return web.json_response(self.refusal, status=self.refusal["code"])
        socket = web.WebSocketResponse(protocols=["v4.channel.k8s.io"])
        await socket.prepare(request)
        for channel in (b"\0", b"\1"):
            await socket.send_bytes(channel + NAME)
        await socket.send_bytes(b"")
        if self.error:
            await socket.send_bytes(b"\1" + self.error.encode())
        else:
            self.asked = (await socket.receive_bytes())[1:]
            await asyncio.sleep(self.seconds)
            for begin in range(0, len(self.said), 1000):
                await socket.send_bytes(b"\0" + self.said[begin : begin + 1000])
        await socket.close()
        return socket


@contextmanager
def serving(server: Server) -> Iterator[Cluster]:
    """A cluster whose API server is `server`."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    async def start() -> tuple[web.ServerRunner, int]:
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        return runner, runner.addresses[0][1]

    app = web.Application()
    app.router.add_get(PATH, server.handle)
    runner, port = asyncio.run_coroutine_threadsafe(start(), loop).result()
    try:
        configuration = Configuration(host=f"http://127.0.0.1:{port}")
        configuration.api_key["authorization"] = "Bearer mine"
        yield Cluster(ApiClient(configuration), "here", "team")
    finally:
        asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def test_a_pod_is_asked_at_its_own_port_and_its_answer_is_read_whole() -> None:
    document = {"ranks": [{"ranks": [0], "does": "is at a.py:1", "stack": ["a.py:1"] * 1000}]}
    server = Server(answer("200 OK", json.dumps(document)))
    with serving(server) as cluster:
        assert cluster.ask_pod("digits-0", PORT, "/stacks") == document
    assert server.asked.startswith(b"GET /stacks HTTP/1.0\r\nHost: localhost\r\n")


def test_who_may_not_forward_ports_is_told_which_role_may() -> None:
    why = f"{re.escape(MAY_NOT)}. Ask for the ClusterRole {re.escape(DEBUG)}$"
    with serving(Server(refusal=FORBIDDEN)) as cluster, pytest.raises(RefusedError, match=why):
        cluster.ask_pod("digits-0", PORT, "/stacks")


def test_a_pod_that_does_not_answer_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_module, "ANSWER_SECONDS", 0.05)
    with (
        serving(Server(answer("200 OK", "{}"), seconds=0.5)) as cluster,
        pytest.raises(UnreachableError, match="timed out"),
    ):
        cluster.ask_pod("digits-0", PORT, "/stacks")


@pytest.mark.parametrize(
    ("server", "why"),
    [
        (Server(answer("404 Not Found", "not found: the paths are /status")), "not found: the paths are /status"),
        (Server(answer("404 Not Found", "<html>" * 1000)), "gives no answer: <html>"),
        (Server(error="connection refused"), "pod digits-0 gives no answer"),
        (Server(answer("200 OK", "[1]")), "another version of DDPJob"),
        (Server(), "gives no answer: Remote end closed connection"),
    ],
    ids=["of an older image", "of another program", "nothing listens", "no object", "it is closed"],
)
def test_an_answer_that_is_none_is_one_line(server: Server, why: str) -> None:
    with serving(server) as cluster, pytest.raises(UnreachableError, match=why) as error:
        cluster.ask_pod("digits-0", PORT, "/stacks")
    assert len(str(error.value)) < 500
