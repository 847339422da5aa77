"""The protocol between ranks and the leader of their agreement: lines and contents, over TCP.

A connection begins with a greeting of fixed length: the leader's token, and the rank; for a content also its names
and its size. The leader answers with WELCOME. So a rank notices if it has reached another program, and the leader
reads nothing but a greeting from another program. Then lines of a word and numbers follow, or the content.

The sockets are used directly, not through asyncio's streams: a forked child can close its copies, and nothing is
buffered for a peer that reads nothing.
"""

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from weakref import WeakSet

from ddpjob_rank.machine.listening import listen_on

GREETING_BYTES = 256
NAMES_BYTES = 128
WELCOME = b"welcome\n"
LINE_BYTES = 256
PART_BYTES = 1 << 20
"""How many bytes of a content are read by one call."""

CONNECT_SECONDS = 5.0
"""How long an address may take to answer, and how long a new connection may take to send its greeting."""

KEEPALIVE = (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 6))
"""A machine that has vanished is noticed after two minutes, and no router forgets a silent connection."""

_NO_SIGNAL: int = getattr(socket, "MSG_NOSIGNAL", 0)
"""Prevents SIGPIPE, which would end a program that has restored its default handler."""

_open = WeakSet[socket.socket]()


def _close_copies() -> None:
    """Closes a forked child's copies of all sockets, which would keep the connections of a dead rank open."""
    for copy in list(_open):
        if copy.fileno() >= 0:
            os.close(copy.detach())


os.register_at_fork(after_in_child=_close_copies)


def listening(address: str, backlog: int) -> socket.socket:
    """A socket that listens on a free port: on one address, or on all addresses if it is empty."""
    return prepared(listen_on(address or None, 0, backlog))


async def connected(hosts: Sequence[str], port: int, greeting: str) -> socket.socket:
    """Connects to the first of these hosts on which the leader answers.

    Raises:
        ConnectionRefusedError: All of them refuse connections.
        ConnectionError: The leader answers on none of them.
    """
    kind: type[ConnectionError] = ConnectionRefusedError
    for host in dict.fromkeys(hosts):
        with suppress(OSError):
            # Not by asyncio, which would resolve the name in a thread. The process could not end before that thread.
            for family, _, _, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
                with suppress(ConnectionRefusedError):
                    if connection := await _try(family, address, greeting):
                        return connection
                    kind = ConnectionError
    raise kind(f"rank 0 answers at none of {', '.join(hosts)}, port {port}")


async def greeted(connection: socket.socket) -> list[str]:
    """The words of the greeting that a new connection has sent.

    Raises:
        OSError: No greeting has come. TimeoutError is one of these.
        ValueError: The greeting is not text.
    """
    async with asyncio.timeout(CONNECT_SECONDS):
        return (await content(connection, GREETING_BYTES)).decode("ascii").split()


async def content(connection: socket.socket, size: int, arrives: Callable[[], object] = lambda: None) -> bytearray:
    """The next `size` bytes. Calls `arrives` whenever some of them have come.

    Raises:
        OSError: The connection has ended before that.
    """
    received, loop = bytearray(size), asyncio.get_running_loop()
    with memoryview(received) as room:
        start = 0
        while start < size:
            count = await loop.sock_recv_into(connection, room[start : start + PART_BYTES])
            if not count:
                raise ConnectionError("the connection has ended")
            start += count
            arrives()
    return received


async def messages(connection: socket.socket) -> AsyncIterator[tuple[str, list[int]]]:
    """Yields the messages that arrive, each a word and its numbers, until the connection ends.

    Raises:
        OSError: The connection was lost.
        ValueError: A line is not a message.
    """
    rest, loop = b"", asyncio.get_running_loop()
    while received := await loop.sock_recv(connection, LINE_BYTES):
        *lines, rest = (rest + received).split(b"\n")
        if len(rest) > LINE_BYTES:
            raise ValueError("a line without an end")
        for line in lines:
            word, *numbers = line.decode("ascii").split()
            yield word, [int(number) for number in numbers]


def tell(connection: socket.socket, word: str, *numbers: int) -> None:
    """Sends a message, without waiting. A peer that has not read hundreds of messages loses its connection."""
    line = " ".join([word, *(f"{number:d}" for number in numbers)]).encode() + b"\n"
    try:
        sent = connection.send(line, _NO_SIGNAL)
    except OSError:
        sent = 0
    if sent < len(line):
        end(connection)


def end(connection: socket.socket) -> None:
    """Ends a connection. Its reader then reads the end, and closes it."""
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


async def _try(family: int, address: object, greeting: str) -> socket.socket | None:
    loop, connection = asyncio.get_running_loop(), prepared(socket.socket(family, socket.SOCK_STREAM))
    answers = False
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            await loop.sock_connect(connection, address)  # type: ignore[arg-type]
            await loop.sock_sendall(connection, greeting.encode().ljust(GREETING_BYTES))
            answers = await content(connection, len(WELCOME)) == WELCOME
    except ConnectionRefusedError:
        raise
    except OSError:
        pass
    finally:
        if not answers:
            connection.close()
    return connection if answers else None


def prepared(connection: socket.socket) -> socket.socket:
    """Prepares a socket for the event loop, for a peer that vanishes, and for forks."""
    connection.setblocking(False)
    with suppress(OSError):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in KEEPALIVE:
            if option := getattr(socket, name, None):
                connection.setsockopt(socket.IPPROTO_TCP, option, value)
    _open.add(connection)
    return connection
