"""A connection between a member and the leader: over TCP, or within rank 0's own supervisor."""

import asyncio
import contextlib
import socket
from typing import Protocol

from .messages import Message, UnreadableError, from_line, to_line

LINE_BYTES = 1 << 20

SILENT_SECONDS = 10.0
"""Who has said nothing for so long is gone: a machine that loses its power says no goodbye."""

PING_SECONDS = 1.0

CONNECT_SECONDS = 2.0
"""Who does not take a connection for so long is not there: packets to the address of a pod that is gone are lost."""


class LinkLostError(Exception):
    """The other side is gone, or says nothing any more."""


class Link(Protocol):
    """Messages to and from one other supervisor, in order."""

    def send(self, message: Message) -> None:
        """Says something; that the other side is gone is found out by `receive`."""

    async def receive(self) -> Message:
        """What the other says next.

        Raises:
            LinkLostError: Nothing more will come.
            UnreadableError: It is no message.
        """

    async def close(self) -> None:
        """Ends the connection once all is sent."""


class TcpLink:
    """Over the control port."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        connection = writer.get_extra_info("socket")
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    @property
    def peer_host(self) -> str:
        """The other side's address."""
        host: str = self._writer.get_extra_info("peername")[0]
        return host.removeprefix("::ffff:")

    def send(self, message: Message) -> None:
        """Says something; that the other side is gone is found out by `receive`."""
        if not self._writer.is_closing():
            self._writer.write(to_line(message))

    async def receive(self) -> Message:
        """What the other says next.

        Raises:
            LinkLostError: Nothing more will come.
            UnreadableError: It is no message.
        """
        try:
            async with asyncio.timeout(SILENT_SECONDS):
                line = await self._reader.readline()
        except (OSError, TimeoutError) as error:
            raise LinkLostError from error
        except ValueError as error:
            raise UnreadableError(f"more than {LINE_BYTES} bytes without an end are no message") from error
        if not line.endswith(b"\n"):
            raise LinkLostError
        return from_line(line)

    async def close(self) -> None:
        """Ends the connection once all is sent."""
        self._writer.close()
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(PING_SECONDS):
                await self._writer.wait_closed()


async def connect(address: str, source: str | None = None) -> TcpLink:
    """A connection to whoever listens at `host:port`; to them it comes from the address `source`.

    There they look for this supervisor, so it is to be the one on which it listens, if that is one of several.

    Raises:
        OSError: Nobody does, or the name is not known.
    """
    host, _, port = address.rpartition(":")
    async with asyncio.timeout(CONNECT_SECONDS):
        reader, writer = await asyncio.open_connection(
            host.strip("[]"), int(port), limit=LINE_BYTES, local_addr=(source, 0) if source else None
        )
    return TcpLink(reader, writer)


async def answers(host: str, port: int) -> bool:
    """Whether anything listens there."""
    try:
        _, writer = await asyncio.open_connection(host, port)
    except OSError:
        return False
    writer.close()
    return True


def address_of(host: str, port: int) -> str:
    """`host:port`, with brackets where the host has colons."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class LocalLink:
    """Between rank 0's supervisor as the leader, and as a member."""

    def __init__(self) -> None:
        self._there: asyncio.Queue[Message | None] = asyncio.Queue()
        self._here: asyncio.Queue[Message | None] = asyncio.Queue()

    def other_end(self) -> "LocalLink":
        """The other side's view of it."""
        other = LocalLink()
        other._there, other._here = self._here, self._there
        return other

    def send(self, message: Message) -> None:
        """Says something."""
        self._there.put_nowait(message)

    async def receive(self) -> Message:
        """What the other says next.

        Raises:
            LinkLostError: Nothing more will come.
        """
        message = await self._here.get()
        if message is None:
            raise LinkLostError
        return message

    async def close(self) -> None:
        """Ends the connection."""
        self._there.put_nowait(None)
