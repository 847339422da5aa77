"""One question to whatever listens where a supervisor would: only a good answer is one, and none takes for ever."""

import asyncio
import contextlib
import gzip
import json
import socket
from collections.abc import Iterator

import pytest
from aiohttp import web
from ddpjob_operator.cluster.status_client import Answer, NoReportError, ask, new_session
from ddpjob_operator.engine import LARGEST_ANSWER, Asked

from tests.support import virtual_time

from .supervisors import POD, Handler, Supervisor, a_document, serving

A_WHILE = 30.0
MEGABYTES = 10 * 2**20


async def answer_of(asked: Asked, mark: str = "", wait: float = 0.0) -> Answer:
    async with asyncio.timeout(A_WHILE), new_session() as session:
        return await ask(session, asked, mark, wait)


def told_by(handler: Handler, mark: str = "", wait: float = 0.0) -> Answer:
    async def play() -> Answer:
        async with serving(handler) as asked:
            return await answer_of(asked, mark, wait)

    return virtual_time.run(play())


def saying(body: bytes, status: int = 200, **headers: str) -> Handler:
    async def handle(_: web.Request) -> web.StreamResponse:
        return web.Response(body=body, status=status, headers=headers)

    return handle


def dripping(size: int, seconds: float) -> Handler:
    """So many bytes, one at a time."""

    async def handle(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for _ in range(size):
            await response.write(b" ")
            await asyncio.sleep(seconds)
        return response

    return handle


async def silence(_: web.Request) -> web.StreamResponse:
    await asyncio.sleep(A_WHILE)
    return web.Response()


@contextlib.contextmanager
def nothing_accepting() -> Iterator[Asked]:
    """Where a connection is neither refused nor made."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full, contextlib.ExitStack() as stack:
        for _ in range(3):  # As many as it keeps before it takes notice of no more.
            one = stack.enter_context(socket.socket())
            one.setblocking(False)
            one.connect_ex(full.getsockname())
        yield Asked(POD, *full.getsockname())


def test_an_answer_has_the_document_and_its_mark() -> None:
    told = told_by(Supervisor().handle)
    assert told == Answer(a_document(), '"1"')


def test_asked_with_its_mark_a_supervisor_answers_on_news() -> None:
    async def play() -> Answer:
        supervisor = Supervisor()
        async with serving(supervisor.handle) as asked:
            asking = asyncio.create_task(answer_of(asked, '"1"', wait=A_WHILE))
            await supervisor.until(lambda: supervisor.waiting['"1"'] == 1)
            assert not asking.done(), "there is no news"
            await supervisor.says(phase="Stalled")
            return await asking

    told = virtual_time.run(play())
    assert (told.document["phase"], told.mark) == ("Stalled", '"2"')


@pytest.mark.parametrize(
    ("handler", "result", "message"),
    [
        (saying(b"<html>Hello</html>"), "unreadable", "is not a status: b'<html>Hello</html>'"),
        (saying(b"[1, 2]"), "unreadable", "is not a status"),
        (saying(b"\xff\xfe"), "unreadable", "is not a status"),
        (saying(b"[" * 100_000), "unreadable", "is not a status"),
        (saying(b"[" + b"9" * 10_000 + b"]"), "unreadable", "is not a status"),
        (saying(b""), "unreadable", "is not a status"),
        (saying(b" " * MEGABYTES), "unreadable", "is larger than 256 KiB"),
        (saying(gzip.compress(b"{}"), **{"Content-Encoding": "gzip"}), "unreadable", "is not a status"),
        (saying(b"{}", 404), "unreadable", "answers with HTTP status 404"),
        (saying(b"", 302, Location="/healthz"), "unreadable", "answers with HTTP status 302"),
        (saying(b"{}", **{"X-Long": "x" * 100_000}), "silent", "does not answer: "),
        (silence, "silent", "has not answered in time"),
        (dripping(1000, 1.0), "silent", "has not answered in time"),
    ],
    ids=[
        "a page",
        "a list",
        "no text",
        "too deep",
        "too large a number",
        "nothing",
        "10 MB",
        "compressed",
        "no such page",
        "elsewhere",
        "a large header",
        "silence",
        "a drip",
    ],
)
def test_what_is_no_answer_is_told_in_a_sentence(handler: Handler, result: str, message: str) -> None:
    with pytest.raises(NoReportError) as unheard:
        told_by(handler)
    said = str(unheard.value)
    assert unheard.value.result == result, said
    assert message in said
    assert "127.0.0.1:" in said
    assert "\n" not in said


def test_where_nothing_listens_the_answer_is_refused() -> None:
    async def play() -> None:
        async with serving(Supervisor().handle) as asked:
            pass
        await answer_of(asked)

    with pytest.raises(NoReportError, match=r"nothing listens on 127.0.0.1:\d+") as unheard:
        virtual_time.run(play())
    assert unheard.value.result == "refused"


def test_where_no_connection_comes_about_that_is_said_whatever_the_wait() -> None:
    async def play() -> None:
        with nothing_accepting() as asked:
            await answer_of(asked, '"1"', wait=10)

    with pytest.raises(NoReportError, match=r"no connection to 127.0.0.1:\d+ within 5 s") as unheard:
        virtual_time.run(play())
    assert unheard.value.result == "silent"


CUT = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"


@pytest.mark.parametrize("sent", [CUT, b"SSH-2.0-OpenSSH_9.2\r\n", b""], ids=["cut", "another protocol", "nothing"])
def test_a_connection_that_breaks_is_no_answer(sent: bytes) -> None:
    async def play() -> None:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(sent)
            writer.close()

        async with await asyncio.start_server(serve, "127.0.0.1", 0) as listener:
            await answer_of(Asked(POD, "127.0.0.1", listener.sockets[0].getsockname()[1]))

    with pytest.raises(NoReportError, match=r"127.0.0.1:\d+ does not answer: ."):
        virtual_time.run(play())


@pytest.mark.parametrize(
    ("mark", "kept"), [('"1"', '"1"'), ('W/"x"', 'W/"x"'), ('"' + "x" * 500 + '"', ""), ("\xe9", "")]
)
def test_only_a_mark_that_can_be_sent_back_is_one(mark: str, kept: str) -> None:
    assert told_by(saying(json.dumps(a_document()).encode(), ETag=mark)).mark == kept


def test_an_answer_may_be_as_large_as_any_supervisor_s() -> None:
    ranks = [{"rank": rank, "node": rank, "memoryBytes": 2**40} for rank in range(1000)]
    body = json.dumps(a_document(ranks=ranks)).encode()
    assert len(body) < LARGEST_ANSWER
    assert told_by(saying(body)).document["ranks"] == ranks


def test_each_question_has_a_connection_of_its_own_because_an_address_may_be_another_pods_by_then() -> None:
    ports: list[int] = []

    async def handle(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        ports.append(request.transport.get_extra_info("peername")[1])
        return web.json_response(a_document())

    async def play() -> None:
        async with serving(handle) as asked, new_session() as session:
            for _ in range(2):
                await ask(session, asked, "", 0.0)

    virtual_time.run(play())
    assert len(set(ports)) == 2
