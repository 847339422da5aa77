"""Connections between supervisors, over this machine's loopback addresses."""

import asyncio
import gc
import socket
import sys
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from ddpjob_supervisor.gang import link, messages
from ddpjob_supervisor.gang.addresses import address_of, host_and_port
from ddpjob_supervisor.gang.link import LinkLostError, LocalLink, TcpLink, connect, send_all, why
from ddpjob_supervisor.gang.messages import Beats, Message, Start

from tests.support.ports import hold_port
from tests.support.waiting import patience

DEADLINE_SECONDS = 30


@asynccontextmanager
async def a_server() -> AsyncIterator[tuple[str, asyncio.Queue[TcpLink]]]:
    """Listens, and gives its address and the far ends of the connections to it; in the end it closes them."""
    came: asyncio.Queue[TcpLink] = asyncio.Queue()
    all_of_them: list[TcpLink] = []

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        all_of_them.append(TcpLink(reader, writer))
        came.put_nowait(all_of_them[-1])

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    async with server, asyncio.timeout(patience(DEADLINE_SECONDS)):
        yield address_of("127.0.0.1", server.sockets[0].getsockname()[1]), came
        await asyncio.gather(*(link.close() for link in all_of_them))


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has all of 127.0.0.0/8")
def test_who_listens_on_one_of_several_addresses_connects_from_there() -> None:
    async def test() -> str:
        came: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            link = TcpLink(reader, writer)
            came.set_result(link.peer_host)
            await link.close()

        server = await asyncio.start_server(serve, "127.0.0.2", 0)
        async with server:
            link = await connect(f"127.0.0.2:{server.sockets[0].getsockname()[1]}", "127.0.0.3")
            host = await came
            await link.close()
        return host

    assert asyncio.run(test()) == "127.0.0.3"


@pytest.mark.parametrize("look", ["connect", "answers"])
def test_a_name_server_that_does_not_answer_keeps_no_supervisor_from_ending(
    look: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    over = threading.Event()

    def hang(*_: object, **__: object) -> None:
        over.wait(patience(DEADLINE_SECONDS))

    monkeypatch.setattr(socket, "getaddrinfo", hang)
    monkeypatch.setattr(link, "NAME_SECONDS", 0.05)

    async def test() -> None:
        if look == "answers":
            assert not await link.answers("digits-0.digits", 29500)
        else:
            with pytest.raises(TimeoutError, match="its name was not resolved"):
                await connect("digits-0.digits:29502")

    begun = time.monotonic()
    asyncio.run(test())
    over.set()
    assert time.monotonic() - begun < patience(DEADLINE_SECONDS) / 2


def test_what_is_said_to_all_is_encoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    encoded: list[Message] = []

    def to_line(message: Message) -> bytes:
        encoded.append(message)
        return messages.to_line(message)

    monkeypatch.setattr(link, "to_line", to_line)
    start = Start(1, 29500, {str(node): "10.0.0.1:29502" for node in range(100)})

    async def test() -> None:
        async with a_server() as (address, came):
            near = [await connect(address) for _ in range(3)]
            far = [await came.get() for _ in near]
            local = LocalLink()
            send_all([*far, local.other_end()], start)
            assert [await one.receive() for one in near] == [start] * 3
            assert await local.receive() == start
            await asyncio.gather(*(one.close() for one in near))

    asyncio.run(test())
    assert encoded == [start]


def test_who_stops_waiting_for_an_end_leaves_no_error_behind_that_nobody_asks_for() -> None:
    async def test() -> list[dict[str, Any]]:
        told: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
        async with a_server() as (address, came):
            near, far = await connect(address), await came.get()
            near.send(Beats(1), b"x" * (1 << 25))  # More than sockets hold: the end waits for it.
            closing = asyncio.create_task(near.close())
            await asyncio.sleep(0)
            closing.cancel()
            await asyncio.wait([closing])
            del closing
            far.abort()
            with pytest.raises(OSError, match=r"reset|Broken"):
                await near._writer.wait_closed()
            await asyncio.sleep(0)
            gc.collect()
        return told

    assert asyncio.run(test()) == []


def test_who_takes_nothing_more_holds_up_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link, "PING_SECONDS", 0.01)

    async def test() -> None:
        async with a_server() as (address, came):
            with socket.create_connection(host_and_port(address)):
                full = await came.get()
                while full._writer.transport.get_write_buffer_size() == 0:
                    full.send(Beats(1, ({"said": "x" * 100_000},)))
                await full.close()
                assert full._writer.transport.get_write_buffer_size() == 0

    asyncio.run(test())


@pytest.mark.parametrize("address", ["", "host", "host:", ":29502", "host:port", "host:0", "host:65536", "host:-1"])
def test_what_is_no_address_is_nobodys(address: str) -> None:
    with pytest.raises(OSError, match=r"is not host:port$"):
        asyncio.run(connect(address))


def test_a_name_that_none_can_be_is_nobodys() -> None:
    with pytest.raises(OSError, match="label"):
        asyncio.run(connect(f"{'x' * 80}:29502"))


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ConnectionRefusedError(111, "Connect call failed ('10.0.0.1', 29502)"), "Connection refused"),
        (socket.gaierror(-2, "Name or service not known"), "Name or service not known"),
        (TimeoutError("no answer within 2 s"), "no answer within 2 s"),
    ],
)
def test_why_nobody_is_there_is_told_in_words(error: OSError, words: str) -> None:
    assert why(error) == words


def test_a_name_that_takes_longer_than_a_connection_may_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link, "CONNECT_SECONDS", 0.01)

    async def test() -> None:
        resolve = socket.getaddrinfo

        def slowly(*words: Any, **more: Any) -> object:
            time.sleep(0.02)
            monkeypatch.setattr(link, "CONNECT_SECONDS", DEADLINE_SECONDS)  # Who connects now has time again.
            return resolve(*words, **more)

        monkeypatch.setattr(socket, "getaddrinfo", slowly)
        async with a_server() as (address, _):
            near = await connect(address)
            await near.close()

    asyncio.run(test())


def test_a_host_with_several_addresses_is_tried_at_each(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with a_server() as (address, _):
            host, port = host_and_port(address)
            nobody = ("127.0.0.1", hold_port())
            found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", where) for where in (nobody, (host, port))]
            monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
            near = await connect("host:29502")
            await near.close()

    asyncio.run(test())


def test_a_connection_that_is_lost_says_so() -> None:
    async def test() -> None:
        async with a_server() as (address, came):
            near = await connect(address)
            (await came.get()).abort()
            with pytest.raises(LinkLostError):
                await near.receive()
            await near.close()

    asyncio.run(test())


def test_a_connection_that_is_gone_before_it_is_looked_at_comes_from_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many of a flood are: it must not be a mistake of ours."""

    async def test() -> None:
        async with a_server() as (address, came):
            near = await connect(address)
            far = await came.get()
            monkeypatch.setattr(far._writer, "get_extra_info", {"peername": None}.get)
            assert far.peer_host == ""
            await near.close()

    asyncio.run(test())
