"""Who may keep a port busy: connections that say nothing, hosts that open many, and a process that is full."""

import asyncio
import errno
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import ClassVar

import pytest
from ddpjob_rank.machine import listening
from ddpjob_rank.machine.listening import Door, Places, free_port, listen_on

from tests.support.waiting import patience


@pytest.mark.parametrize("backlog", [None, 7])
@pytest.mark.parametrize(
    ("address", "has_both", "asked"),
    [
        ("127.0.0.1", True, ("127.0.0.1", {"family": socket.AF_INET})),
        ("::1", False, ("::1", {"family": socket.AF_INET6})),
        (None, True, ("", {"family": socket.AF_INET6, "dualstack_ipv6": True})),
        ("", False, ("", {"family": socket.AF_INET, "dualstack_ipv6": False})),
    ],
)
def test_a_port_without_an_address_is_open_to_all_versions_that_the_system_has(
    monkeypatch: pytest.MonkeyPatch,
    address: str | None,
    asked: tuple[str, dict[str, object]],
    backlog: int | None,
    *,
    has_both: bool,
) -> None:
    made: list[object] = []
    monkeypatch.setattr(socket, "has_dualstack_ipv6", lambda: has_both)
    monkeypatch.setattr(socket, "create_server", lambda place, **how: made.extend((place, how)))
    listen_on(address, 29501, backlog)
    host, options = asked
    assert made == [(host, 29501), {"backlog": backlog, **options}]


def test_a_port_that_nobody_has_is_found_and_another_error_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    with listen_on("127.0.0.1", 0) as taken:
        drawn = [taken.getsockname()[1]]
        free = free_port("127.0.0.1")
        drawn.append(free)
        monkeypatch.setattr(listening.random.SystemRandom, "choice", lambda *_: drawn.pop(0))
        assert free_port("127.0.0.1") == free
    drawn[:] = [free]
    with pytest.raises(OSError, match="Cannot assign requested address"):
        free_port("192.0.2.1")


def test_the_busiest_host_loses_its_oldest_connection() -> None:
    places = Places[int](3)
    entered = [places.enter(host, one) for one, host in enumerate(["a", "b", "b", "a", "c"])]
    assert entered == [None, None, None, ("b", 1), ("a", 0)]
    places.leave("b", 1)  # It has gone already.
    for one, host in ((2, "b"), (3, "a"), (4, "c")):
        places.leave(host, one)
    assert [places.enter("d", one) for one in range(4)] == [None, None, None, ("d", 0)]


class Full(socket.socket):
    """A listening socket of a process that can have no more files, for some tries."""

    tries: ClassVar[list[int]] = []

    def accept(self) -> tuple[socket.socket, object]:
        if Full.tries:
            raise OSError(Full.tries.pop(0), "no more")
        return super().accept()


class Guests:
    """Those who connect, and what became of them."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.served: list[bytes] = []
        self.pushed_out: list[str] = []
        self._writers: list[asyncio.StreamWriter] = []

    async def come(self, word: bytes = b"") -> asyncio.StreamReader:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        self._writers.append(writer)
        writer.write(word)
        return reader

    async def leave(self) -> None:
        """All of them."""
        while self._writers:
            writer = self._writers.pop()
            writer.close()
            await writer.wait_closed()


@asynccontextmanager
async def door(silent: int) -> AsyncIterator[tuple[Guests, Door]]:
    with listen_on("127.0.0.1", 0) as bound:
        listener = Full(fileno=bound.detach())
    guests = Guests(listener.getsockname()[1])

    async def serve(connection: socket.socket) -> None:
        guests.served.append(connection.recv(64))
        connection.close()

    made = Door(listener, serve, silent=silent, pushed_out=guests.pushed_out.append)
    try:
        async with asyncio.timeout(patience(20)):
            yield guests, made
    finally:
        if listener.fileno() >= 0:
            made.close()
        await guests.leave()


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110  (no event reports it)
        await asyncio.sleep(0.005)


def test_who_says_something_is_served_and_who_says_nothing_loses_its_place_to_the_next() -> None:
    async def scene() -> None:
        async with door(silent=2) as (guests, made):
            readers = [await guests.come() for _ in range(3)]
            assert await readers[0].read() == b"", "the oldest is closed"
            assert guests.pushed_out == ["127.0.0.1"]
            await guests.come(b"word")
            await until(lambda: bool(guests.served))
            assert guests.served == [b"word"]
            assert len(made._timers) <= 2

    asyncio.run(scene())


def test_who_has_left_or_spoken_takes_no_place_any_more() -> None:
    async def scene() -> None:
        async with door(silent=2) as (guests, made):
            for turn in range(3):
                for word in (b"", b"word"):
                    await guests.come(word)
                await guests.leave()
                await until(lambda turn=turn: len(guests.served) == turn + 1 and not made._timers)  # type: ignore[misc]
            assert guests.pushed_out == []
            assert made._silent._count == 0

    asyncio.run(scene())


def test_who_says_nothing_for_long_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "SILENT_SECONDS", 0.01)

    async def scene() -> None:
        async with door(silent=2) as (guests, made):
            assert await (await guests.come()).read() == b""
            assert (made._silent._count, made._timers, guests.pushed_out) == (0, {}, [])

    asyncio.run(scene())


@pytest.mark.parametrize("error", [errno.EMFILE, errno.ENOMEM, errno.ECONNABORTED])
def test_a_process_that_can_have_no_more_files_accepts_later(monkeypatch: pytest.MonkeyPatch, error: int) -> None:
    monkeypatch.setattr(listening, "FULL_SECONDS", 0.01)
    monkeypatch.setattr(Full, "tries", [error, error])

    async def scene() -> None:
        async with door(silent=2) as (guests, _):
            await guests.come(b"word")
            await until(lambda: bool(guests.served))
            assert Full.tries == []

    asyncio.run(scene())


def test_a_closed_door_lets_the_silent_go_and_listens_no_more() -> None:
    async def scene() -> None:
        async with door(silent=2) as (guests, made):
            reader = await guests.come()
            await until(lambda: bool(made._timers))
            made.close()
            assert await reader.read() == b""
            made._open()  # As if the process had been full a moment ago.
            with pytest.raises(ConnectionRefusedError):
                await guests.come()

    asyncio.run(scene())
