"""The status port, asked by a real client."""

import asyncio
import json
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack
from typing import Any
from unittest import mock

import aiohttp
import pytest
from ddpjob_rank.machine.listening import SILENT
from ddpjob_supervisor.gang.states import Phase
from ddpjob_supervisor.page import answers
from ddpjob_supervisor.page.document import Gang, document
from ddpjob_supervisor.page.server import Page

from tests.support.files import many_files, open_files
from tests.support.waiting import patience

ADDRESS = "127.0.0.1"
LONG = 30.0
"""Seconds within which what must happen at once has happened on any machine."""
MORE_THAN_IS_KEPT = 16 << 20
"""Bytes of an answer that no system keeps for somebody who does not read it."""


@pytest.fixture(autouse=True)
def _many_files() -> Iterator[None]:
    with many_files():
        yield


class Served:
    """A page whose gang is at an attempt, and a client."""

    def __init__(self, *, leads: bool = True) -> None:
        self.attempt, self.reads, self.looks = 1, 0, 0
        self.page = Page(0, ADDRESS, self.read, *((self.look, self.curve) if leads else ()))

    async def look(self) -> dict[str, Any]:
        self.looks += 1
        return {"attempt": self.attempt, "ranks": []}

    def read(self) -> dict[str, Any]:
        self.reads += 1
        return document(Gang("u", 2, 1, self.attempt, Phase.RUNNING, 0.0))

    def curve(self, after: int) -> str:
        return json.dumps({"last": 2, "records": [{"step": step} for step in (1, 2)][after:]})

    def next_attempt(self) -> None:
        self.attempt += 1
        self.page.changed()

    def url(self, path: str) -> str:
        return f"http://{ADDRESS}:{self.page.port}{path}"


Asking = Callable[[Served, aiohttp.ClientSession], Awaitable[None]]


def serve(asking: Asking, *, leads: bool = True) -> None:
    """Asks a page that is being served."""

    async def all_of_it() -> None:
        served = Served(leads=leads)
        connector = aiohttp.TCPConnector(limit=0)
        async with (
            served.page,
            aiohttp.ClientSession(connector=connector) as client,
            asyncio.timeout(patience(2 * LONG)),
        ):
            await asking(served, client)

    asyncio.run(all_of_it())


def waiting(mark: str, wait: str = "wait=30") -> dict[str, str]:
    return {"If-None-Match": mark, "Prefer": wait}


def test_status_is_json_with_its_mark_as_etag() -> None:
    async def asking(served: Served, client: aiohttp.ClientSession) -> None:
        async with client.get(served.url("/status")) as answer:
            assert (answer.status, answer.content_type) == (200, "application/json")
            assert await answer.json() == json.loads(json.dumps(served.read()))
            assert answer.headers["ETag"] == f'"{served.read()["mark"]}"'

    serve(asking)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Prefer": "wait=30"},
        {"If-None-Match": '"MARK"'},
        waiting('"another"'),
        waiting('"MARK"', "wait=0"),
        waiting('"MARK"', "wait=soon"),
        waiting('"MARK"', "await=30"),
        waiting("MARK"),
    ],
    ids=str,
)
def test_who_does_not_wait_is_answered_at_once(headers: dict[str, str]) -> None:
    async def asking(served: Served, client: aiohttp.ClientSession) -> None:
        mark = served.read()["mark"]
        sent = {name: value.replace("MARK", mark) for name, value in headers.items()}
        timeout = aiohttp.ClientTimeout(answers.LONGEST_WAIT_SECONDS / 2)
        async with client.get(served.url("/status"), headers=sent, timeout=timeout) as answer:
            assert (answer.status, (await answer.json())["mark"]) == (200, mark)

    serve(asking)


async def until_waiting(served: Served, count: int) -> None:
    while served.page._answers is None or len(served.page._answers._waiting) != count:  # noqa: ASYNC110
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("wait", ["wait=30", "respond-async, wait=30", 'Wait = "30"; x=y', "wait=999999"])
def test_who_waits_is_answered_when_the_mark_changes_and_not_before(wait: str) -> None:
    async def asking(served: Served, client: aiohttp.ClientSession) -> None:
        headers = waiting(f'W/"other", "{served.read()["mark"]}"', wait)
        asked = asyncio.create_task(client.get(served.url("/status"), headers=headers))
        await until_waiting(served, 1)
        served.page.changed()
        await asyncio.sleep(0)
        await until_waiting(served, 1)
        assert not asked.done()
        served.next_attempt()
        async with await asked as answer:
            assert (await answer.json())["attempt"] == 2
        await until_waiting(served, 0)

    serve(asking)


def test_whether_there_is_news_is_found_out_once_for_all_who_wait() -> None:
    async def asking(served: Served, client: aiohttp.ClientSession) -> None:
        headers = waiting(f'"{served.read()["mark"]}"')
        asked = [asyncio.create_task(client.get(served.url("/status"), headers=headers)) for _ in range(20)]
        await until_waiting(served, 20)
        before = served.reads
        for _ in range(3):
            served.page.changed()
        await asyncio.sleep(0.05)
        assert served.reads == before + 1
        served.next_attempt()
        for one in await asyncio.gather(*asked):
            assert (await one.json())["attempt"] == 2

    serve(asking)


def test_while_nobody_waits_a_change_costs_nothing() -> None:
    async def asking(served: Served, client: aiohttp.ClientSession) -> None:
        async with client.get(served.url("/status")):
            before = served.reads
        served.page.changed()
        await asyncio.sleep(0.05)
        assert served.reads == before

    serve(asking)


def test_who_waits_is_answered_in_the_end_with_what_is_so_by_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "LONGEST_WAIT_SECONDS", 0.2)

    async def asking(served: Served, client: aiohttp.ClientSession) -> None:
        mark = served.read()["mark"]
        began = asyncio.get_running_loop().time()
        timeout = aiohttp.ClientTimeout(15)
        async with client.get(served.url("/status"), headers=waiting(f'"{mark}"'), timeout=timeout) as answer:
            assert (answer.status, (await answer.json())["mark"]) == (200, mark)
        assert asyncio.get_running_loop().time() - began >= 0.19

    serve(asking)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has all of 127.0.0.0/8")
def test_so_many_wait_and_of_the_host_with_most_the_first_is_answered_at_once() -> None:
    async def asking(served: Served, client: aiohttp.ClientSession) -> None:
        headers, url = waiting(f'"{served.read()["mark"]}"'), served.url("/status")
        connector = aiohttp.TCPConnector(limit=0, local_addr=("127.0.0.9", 0))
        async with aiohttp.ClientSession(connector=connector) as stranger:
            asked = []
            for number in range(answers.WAITING):
                asked.append(asyncio.create_task(stranger.get(url, headers=headers)))
                await until_waiting(served, number + 1)
            ours = asyncio.create_task(client.get(url, headers=headers))
            asked.append(asyncio.create_task(stranger.get(url, headers=headers)))
            for _ in range(2):
                async with await asked.pop(0) as answer:
                    assert (answer.status, (await answer.json())["attempt"]) == (200, 1)
            await until_waiting(served, answers.WAITING)
            asked.pop().cancel()
            await until_waiting(served, answers.WAITING - 1)
            served.next_attempt()
            for one in await asyncio.gather(ours, *asked):
                assert (await one.json())["attempt"] == 2

    serve(asking)


def test_who_waits_is_answered_when_the_page_closes() -> None:
    async def all_of_it() -> None:
        served = Served()
        async with aiohttp.ClientSession() as client:
            async with served.page:
                headers = waiting(f'"{served.read()["mark"]}"')
                asked = asyncio.create_task(client.get(served.url("/status"), headers=headers))
                await until_waiting(served, 1)
            async with await asked as answer:
                assert (await answer.json())["attempt"] == 1
            with pytest.raises(aiohttp.ClientConnectionError):
                await client.get(served.url("/status"))

    asyncio.run(asyncio.wait_for(all_of_it(), answers.LONGEST_WAIT_SECONDS - 5))


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "QUERY"])
@pytest.mark.parametrize("path", answers.PATHS)
def test_there_are_only_reads(method: str, path: str) -> None:
    async def asking(served: Served, client: aiohttp.ClientSession) -> None:
        async with client.request(method, served.url(path)) as answer:
            assert (answer.status, answer.headers["Allow"]) == (405, "GET, HEAD")

    serve(asking)


@pytest.mark.parametrize("path", ["/x", "/status/", "/status/x", "/debug", "/metrics/../x", "//status"])
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_there_is_nothing_else(method: str, path: str) -> None:
    async def asking(served: Served, client: aiohttp.ClientSession) -> None:
        async with client.request(method, served.url(path)) as answer:
            assert (answer.status, await answer.text()) == (
                404,
                "not found: the paths are /, /status, /curve, /metrics, /healthz, /stacks\n",
            )

    serve(asking)


@pytest.mark.parametrize("path", answers.PATHS)
def test_head_tells_what_get_would_without_its_body(path: str) -> None:
    async def asking(served: Served, client: aiohttp.ClientSession) -> None:
        async with client.get(served.url(path)) as whole, client.head(served.url(path)) as head:
            assert (head.status, head.headers["Content-Type"]) == (200, whole.headers["Content-Type"])
            assert (int(head.headers["Content-Length"]), await head.read()) == (len(await whole.read()), b"")

    serve(asking)


def test_healthz_says_ok() -> None:
    async def asking(served: Served, client: aiohttp.ClientSession) -> None:
        async with client.get(served.url("/healthz")) as answer:
            assert (answer.status, await answer.text()) == (200, "ok\n")

    serve(asking)


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET /status HTTP/1.1\r\nHost: x\r\nX: " + b"x" * 3_000 + b"\r\n\r\n",
        b"GET /" + b"x" * 3_000 + b" HTTP/1.1\r\n\r\n",
        b"GET /status HTTP/1.1\r\n" + b"X: y\r\n" * 10_000 + b"\r\n",
        b"POST /status HTTP/1.1\r\nHost: x\r\nContent-Length: 100000000000\r\n\r\nx",
        b"\r\n" * 1000 + b"?\r\n\r\n",
    ],
    ids=["TLS", "a long header", "a long path", "many headers", "a large body", "no request"],
)
def test_what_is_no_request_is_refused_quietly(garbage: bytes, capfd: pytest.CaptureFixture[str]) -> None:
    async def asking(served: Served, client: aiohttp.ClientSession) -> None:
        reader, writer = await asyncio.open_connection(ADDRESS, served.page.port)
        writer.write(garbage)
        line = await reader.readline()
        assert line.startswith((b"HTTP/1.1 4", b"HTTP/1.0 4")), line
        writer.close()
        async with client.get(served.url("/healthz")) as answer:
            assert answer.status == 200

    serve(asking)
    assert capfd.readouterr() == ("", "")


def test_so_many_connections_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "CONNECTIONS", 3)

    async def asking(served: Served, client: aiohttp.ClientSession) -> None:
        async with client.get(served.url("/healthz")) as answer:
            await answer.read()
        ours = []
        for _ in range(3):
            reader, writer = await asyncio.open_connection(ADDRESS, served.page.port)
            writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            assert (await reader.readline()).endswith(b"200 OK\r\n")
            ours.append((reader, writer))
        assert len(served.page._answers._server.connections) == 3  # type: ignore[union-attr]
        for _, one in ours:
            one.close()

    serve(asking)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has all of 127.0.0.0/8")
@pytest.mark.parametrize("words", [b"", b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n", b"GET /he"])
def test_whoever_holds_many_connections_keeps_nobody_else_out(words: bytes) -> None:
    """Idle ones, ones that were answered, and ones that never end a request."""

    async def asking(served: Served, client: aiohttp.ClientSession) -> None:
        many = []
        async with client.get(served.url("/status")) as answer:
            mark = answer.headers["ETag"]
        waits = asyncio.create_task(client.get(served.url("/status"), headers=waiting(mark)).__aenter__())
        for _ in range(SILENT + answers.CONNECTIONS):
            many.append(await asyncio.open_connection(ADDRESS, served.page.port, local_addr=("127.0.0.9", 0)))
            many[-1][1].write(words)
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector) as another:
            for _ in range(5):
                async with another.get(served.url("/status")) as answer:
                    assert answer.status == 200
        served.next_attempt()
        assert (await waits).status == 200, "who waited for news before is still heard"
        waits.result().close()
        for _, one in many:
            one.close()

    serve(asking)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has all of 127.0.0.0/8, and counts open files")
def test_whoever_does_not_read_what_they_asked_for_holds_no_more_places_than_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(answers, "CONNECTIONS", 4)
    monkeypatch.setattr(answers.Metrics, "exposition", lambda *_: b"x" * MORE_THAN_IS_KEPT)

    async def asking(served: Served, client: aiohttp.ClientSession) -> None:
        async with client.get(served.url("/healthz")) as answer:
            assert answer.status == 200
        before = open_files()
        with ExitStack() as stack:
            for _ in range(20):
                there = stack.enter_context(socket.socket())
                there.bind(("127.0.0.9", 0))
                there.connect((ADDRESS, served.page.port))
                there.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
                await asyncio.to_thread(there.recv, 1)
            while open_files() > before + 20 + 4:
                async with client.get(served.url("/healthz")) as answer:
                    assert answer.status == 200

    serve(asking)


def test_a_port_that_is_taken_costs_the_page_and_nothing_else(capfd: pytest.CaptureFixture[str]) -> None:
    async def all_of_it(port: int) -> None:
        async with Page(port, ADDRESS, dict) as page:
            page.changed()
            assert page.port is None

    with socket.create_server((ADDRESS, 0)) as taken:
        port = taken.getsockname()[1]
        asyncio.run(all_of_it(port))
    (line,) = capfd.readouterr().err.splitlines()
    cannot = f"cannot listen on port {port}: it is taken by this process itself"
    advice = "set another DDPJOB_STATUS_PORT (spec.network.statusPort)"
    assert line == f"warning: training goes on without a status page: {cannot}; {advice}"


@pytest.mark.parametrize("listen", ["127.0.0.1", "127.0.0.5", "::1", None])
def test_it_listens_where_it_is_told_to(listen: str | None) -> None:
    async def all_of_it() -> list[bool]:
        async with Page(0, listen, dict) as page, aiohttp.ClientSession() as client:
            reached = []
            for host in ("127.0.0.1", "127.0.0.5", "[::1]"):
                try:
                    async with client.get(f"http://{host}:{page.port}/healthz") as answer:
                        reached.append(answer.status == 200)
                except aiohttp.ClientConnectionError:
                    reached.append(False)
            return reached

    if not socket.has_dualstack_ipv6():
        pytest.skip("no IPv6 here")
    hosts = ("127.0.0.1", "127.0.0.5", "::1")
    assert asyncio.run(all_of_it()) == [listen in {host, None} for host in hosts]


def test_nothing_is_imported_for_it_before_it_starts_and_nothing_of_torch_at_all() -> None:
    script = """
import asyncio, sys
from ddpjob_supervisor.page import document, progress, server, stragglers
assert "aiohttp" not in sys.modules and "prometheus_client" not in sys.modules
async def serve():
    async with server.Page(0, "127.0.0.1", dict) as page:
        await page._serving
asyncio.run(serve())
assert "aiohttp" in sys.modules and "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", script], check=True)


def test_an_image_without_the_libraries_goes_without_a_page() -> None:
    script = """
import asyncio, sys
sys.modules["prometheus_client"] = None
from ddpjob_supervisor.page.server import Page
async def serve():
    async with Page(0, "127.0.0.1", dict) as page:
        await page._serving
        page.changed()
asyncio.run(serve())
"""
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    (line,) = done.stderr.splitlines()
    assert line.startswith("warning: training goes on without a status page: ")
    assert line.endswith("; it needs aiohttp and prometheus-client")


def test_stacks_are_of_now_but_the_ranks_are_not_asked_again_and_again() -> None:
    async def asking(served: Served, client: aiohttp.ClientSession) -> None:
        for _ in range(3):
            async with client.get(served.url("/stacks")) as answer:
                assert (answer.status, await answer.json()) == (200, {"attempt": 1, "ranks": []})
        assert served.looks == 1
        served.page._answers._looked -= answers.LOOK_SECONDS  # type: ignore[union-attr]
        await client.get(served.url("/stacks"))
        assert served.looks == 2

    serve(asking)


def test_the_curve_is_told_from_the_record_on_that_the_client_knows() -> None:
    async def asking(served: Served, client: aiohttp.ClientSession) -> None:
        for query, steps in (("", [1, 2]), ("?after=1", [2]), ("?after=2", [])):
            async with client.get(served.url(f"/curve{query}")) as answer:
                assert (answer.status, answer.content_type) == (200, "application/json")
                assert [record["step"] for record in (await answer.json())["records"]] == steps
        for after in ("-1", "x", "1" * 16, "\u0661"):
            async with client.get(served.url("/curve"), params={"after": after}) as answer:
                assert (answer.status, (await answer.text())[:31]) == (400, "after must be the number of a r")

    serve(asking)


def test_a_supervisor_that_does_not_lead_has_neither_stacks_nor_a_curve() -> None:
    async def asking(served: Served, client: aiohttp.ClientSession) -> None:
        async with client.get(served.url("/stacks")) as answer:
            assert (answer.status, await answer.text()) == (404, "only rank 0's supervisor shows stacks\n")
        async with client.get(served.url("/curve")) as answer:
            assert (answer.status, await answer.text()) == (404, "only rank 0's supervisor has the curve\n")

    serve(asking, leads=False)


@pytest.mark.parametrize(
    ("peer", "own", "status"),
    [
        ("127.0.0.1", "127.0.0.1", 200),
        ("127.0.0.1", "127.0.0.9", 200),
        ("::1", "::1", 200),
        ("10.0.0.1", "10.0.0.1", 200),
        ("::ffff:10.0.0.1", "10.0.0.1", 200),
        ("10.0.0.2", "10.0.0.1", 403),
        ("", "10.0.0.1", 403),
    ],
)
def test_stacks_are_shown_to_nobody_on_another_machine(peer: str, own: str, status: int) -> None:
    async def look() -> dict[str, Any]:
        return {}

    async def asking() -> int:
        asked = mock.Mock(path="/stacks", method="GET")
        asked.get_extra_info = {"peername": (peer, 1), "sockname": (own, 29501)}.get
        return (await answers.Answers(dict, look)._answer(asked)).status

    assert asyncio.run(asking()) == status
