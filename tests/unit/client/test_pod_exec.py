"""A conversation with a program in a pod, by the API server's protocol for that (v4.channel.k8s.io)."""

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import Mock

import pytest
import websocket
from aiohttp import web
from ddpjob_operator.client import Cluster, RefusedError, UnreachableError
from ddpjob_operator.client import cluster as cluster_module
from ddpjob_operator.client.pod_exec import LONGEST_LINE, PIECE, QUOTED_BYTES, Conversation
from kubernetes.client.api_client import ApiClient
from kubernetes.client.configuration import Configuration

PATH = "/api/v1/namespaces/team/pods/dev-0/exec"
COMMAND = ("python", "-m", "speak")
MAY_NOT = 'pods "dev-0" is forbidden: User "jane" cannot create resource "pods/exec" in API group ""'
FORBIDDEN = {"kind": "Status", "reason": "Forbidden", "message": MAY_NOT, "code": 403}
DONE = {"status": "Success"}
CAUSES = [{"reason": "ExitCode", "message": "7"}]
FAILED = {
    "status": "Failure",
    "message": "command terminated with non-zero exit code: 1",
    "reason": "NonZeroExitCode",
    "details": {"causes": CAUSES},
}
NOT_FOUND = {"status": "Failure", "reason": "InternalError", "message": 'exec: "vi": executable file not found'}


class Server:
    """Answers the first line with these frames: a channel, and what arrives on it."""

    def __init__(self, *frames: tuple[int, bytes], refusal: Any = None) -> None:
        self.frames, self.refusal = frames, refusal
        self.asked, self.pieces = b"", 0
        self.streams, self.size = set[str](), dict[str, int]()
        self.silent_seconds, self.answers_pings = 0.0, True

    async def handle(self, request: web.Request) -> web.StreamResponse:
        assert request.query.getall("command") == [*COMMAND]
        assert request.query["container"] == "trainer"
        self.streams = {stream for stream in ("stdin", "stdout", "stderr", "tty") if stream in request.query}
        assert request.headers["authorization"] == "Bearer mine"
        if self.refusal is not None:
            return web.json_response(self.refusal, status=self.refusal["code"])
        tunnel = web.WebSocketResponse(protocols=["v4.channel.k8s.io"], autoping=self.answers_pings)
        await tunnel.prepare(request)
        for channel in (1, 2, 3):
            await tunnel.send_bytes(bytes([channel]))  # As the API server does to begin with.
        while "stdin" in self.streams and not self.asked.endswith(b"\n"):
            frame = await tunnel.receive_bytes()
            if frame[:1] == b"\4":
                self.size = json.loads(frame[1:])
                continue
            assert frame[:1] == b"\0"
            self.asked, self.pieces = self.asked + frame[1:], self.pieces + 1
        if not self.answers_pings:
            while (await tunnel.receive()).type is web.WSMsgType.PING:
                pass
            return tunnel
        if self.silent_seconds:
            reading = asyncio.create_task(tunnel.receive())  # Pings are answered only by who reads.
            await asyncio.sleep(self.silent_seconds)
            assert not reading.done()
        for channel, content in self.frames:
            await tunnel.send_bytes(bytes([channel]) + content)
        await tunnel.close()
        return tunnel


@contextmanager
def serving(server: Server) -> Iterator[Cluster]:
    """A cluster whose API server is `server`."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    async def start() -> tuple[web.AppRunner, int]:
        app = web.Application()
        app.router.add_get(PATH, server.handle)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        return runner, runner.addresses[0][1]

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


def talk(server: Server, line: bytes = b"hello\n") -> tuple[list[bytes], str]:
    """The lines that the program prints, and why it ended."""
    with serving(server) as cluster, cluster.start_in_pod("dev-0", "trainer", COMMAND) as conversation:
        conversation.send(line)
        return [*conversation.lines()], conversation.problem


def test_lines_are_whole_however_they_arrive() -> None:
    server = Server((1, b"a\nb"), (1, b"c\n"), (1, b"\n"), (3, json.dumps(DONE).encode()))
    assert talk(server) == ([b"a", b"bc", b""], "")


def test_a_long_line_is_sent_in_pieces() -> None:
    server, line = Server(), b"x" * (2 * PIECE) + b"\n"
    talk(server, line)
    assert (server.asked, server.pieces) == (line, 3)


def test_what_the_program_said_last_on_its_stderr_is_why_it_failed() -> None:
    server = Server((2, b"Traceback\nNo module named speak\n"), (3, json.dumps(FAILED).encode()))
    assert talk(server) == ([], "No module named speak")


@pytest.mark.parametrize(
    ("frame", "problem"),
    [
        ((3, json.dumps(FAILED).encode()), "command terminated with non-zero exit code: 1"),
        ((3, b"not JSON"), "not JSON"),
        ((3, b"[" * 100_000), "[" * QUOTED_BYTES),
        ((1, b"x" * (LONGEST_LINE + 1)), "its answer is too long"),
    ],
)
def test_other_ends_are_explained_too(frame: tuple[int, bytes], problem: str) -> None:
    assert talk(Server(frame)) == ([], problem)


@pytest.mark.parametrize(
    ("outcome", "code", "problem"),
    [
        (DONE, 0, ""),
        (FAILED, 7, FAILED["message"]),
        (NOT_FOUND, None, NOT_FOUND["message"]),
        ([], None, "[]"),
        ({"status": "Failure", "details": {"causes": [{"reason": "ExitCode", "message": "x"}]}}, None, ""),
    ],
)
def test_a_program_ends_with_an_exit_code_or_a_problem(outcome: Any, code: int | None, problem: str) -> None:
    server = Server((2, b"!"), (3, json.dumps(outcome).encode()))
    with serving(server) as cluster:
        with cluster.attach_to_pod("dev-0", "trainer", COMMAND, terminal=False) as session:
            assert [*session.output()] == [(2, b"!")]
        assert (session.exit_code, session.problem) == (code, problem)
    assert server.streams == {"stdout", "stderr"}


def test_a_terminal_passes_on_keys_and_its_size() -> None:
    server = Server((1, b"\x1b[1m"), (3, json.dumps(DONE).encode()))
    with serving(server) as cluster, cluster.attach_to_pod("dev-0", "trainer", COMMAND, terminal=True) as session:
        session.resize(80, 24)
        session.send(b"\x03ls\n")
        assert [*session.output()] == [(1, b"\x1b[1m")]
    assert (server.streams, server.size) == ({"stdin", "stdout", "tty"}, {"Width": 80, "Height": 24})
    assert server.asked == b"\x03ls\n"


def test_a_silent_program_is_waited_for_but_not_a_pod_that_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_module, "ANSWER_SECONDS", 0.1)
    server = Server((1, b"late"), (3, json.dumps(DONE).encode()))
    server.silent_seconds = 0.5
    with serving(server) as cluster, cluster.attach_to_pod("dev-0", "trainer", COMMAND, terminal=False) as session:
        assert [*session.output()] == [(1, b"late")]
    server.answers_pings = False
    with serving(server) as cluster:
        with cluster.attach_to_pod("dev-0", "trainer", COMMAND, terminal=False) as session:
            assert [*session.output()] == []
        assert session.problem == "the connection broke: the pod no longer answers"


def test_who_may_not_run_programs_in_pods_is_told_which_right_is_missing() -> None:
    with pytest.raises(RefusedError, match=r'"pods/exec".*ClusterRole ddpjob-debug, if .*, or edit$'):
        talk(Server(refusal=FORBIDDEN))


def test_an_api_server_that_is_gone_is_named() -> None:
    with serving(Server()) as cluster:
        pass
    gone = cluster.start_in_pod("dev-0", "trainer", COMMAND)
    with pytest.raises(UnreachableError, match=r"^pod dev-0 gives no answer: "), gone:
        pass


@pytest.mark.parametrize("error", [OSError("broken pipe"), websocket.WebSocketConnectionClosedException("closed")])
def test_whoever_sends_to_a_connection_that_is_gone_is_told(error: Exception) -> None:
    tunnel = Mock(**{"send_binary.side_effect": error, "recv_data.side_effect": error, "close.side_effect": error})
    conversation = Conversation(tunnel)
    with pytest.raises(UnreachableError, match=f"^the connection to the pod broke: {error}$"):
        conversation.send(b"hello\n")
    assert [*conversation.lines()] == []
    assert conversation.problem == f"the connection broke: {error}"
    conversation.close()
    assert tunnel.shutdown.called
