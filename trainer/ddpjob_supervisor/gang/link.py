"""A connection between a member and the coordinator: over TCP, or within rank 0's own supervisor."""

import asyncio
import os
import socket
from collections.abc import Iterable

from msgspec.structs import replace

from ddpjob_supervisor.listening import plain

from .addresses import address_of, host_and_port
from .messages import Announce, Challenge, Hello, Message, Refused, UnreadableError, from_line, to_line
from .once import shown
from .proof import CALLER, LISTENER, Role, Seals, SecretDiffersError, UnprovedError, nonce

LINE_BYTES = 1 << 20

FIRST_BYTES = 4096
"""The longest line that is read before there is proof."""


SILENT_SECONDS = 10.0
"""A peer that has sent nothing for this long is gone: a machine that loses power does not say goodbye."""

PING_SECONDS = 1.0

CONNECT_SECONDS = 2.0
"""A peer that does not accept a connection within this time is gone: packets to a lost pod's address are dropped."""

NAME_SECONDS = 30.0
"""How long to look up a name: a resolver waits 5 s for a dead server, for each domain that it tries."""

NOT_DIRECT = "a relay, a proxy or NAT is between the supervisors, which have to reach each other directly"
"""Whoever passes their words on need not have the secret, and would be taken for the one whose words they are."""


class LinkLostError(Exception):
    """The other side is gone, or no longer sends anything."""


class TcpLink:
    """Over the control port."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._ours: Seals | None = None
        self._theirs: Seals | None = None
        connection = writer.get_extra_info("socket")
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    @property
    def here(self) -> str:
        """This end of the connection, as `host:port`."""
        return address_of(*self._end("sockname"))

    @property
    def there(self) -> str:
        """The other end."""
        return address_of(*self._end("peername"))

    @property
    def peer_host(self) -> str:
        """The other side's address; empty if it was gone before that could be read."""
        return self._end("peername")[0]

    def _end(self, name: str) -> tuple[str, int]:
        host, port, *_ = self._writer.get_extra_info(name) or ("", 0)
        return plain(str(host)), port

    def send(self, message: Message, line: bytes = b"") -> None:
        """Says something; that the other side is gone is found out by `receive`.

        `line` is what `to_line` makes of it, where that is known already.
        """
        if not self._writer.is_closing():
            line = line or to_line(message)
            self._writer.write(self._ours.sealed(line) if self._ours else line)

    async def receive(self) -> Message:
        """What the other says next.

        Raises:
            LinkLostError: Nothing more will come.
            UnreadableError: It is no message.
            UnprovedError: It does not come from the other side.
        """
        try:
            async with asyncio.timeout(SILENT_SECONDS):
                line = await self._line(LINE_BYTES if self._theirs else FIRST_BYTES)
        except (OSError, EOFError) as error:  # A TimeoutError is an OSError.
            raise LinkLostError from error
        return from_line(self._theirs.opened(line) if self._theirs else line)

    async def _line(self, most: int) -> bytes:
        """The next line, of at most this many bytes. The reader buffers only FIRST_BYTES: it may be a stranger's."""
        line = bytearray()
        while True:
            try:
                line += await self._reader.readuntil()
            except asyncio.LimitOverrunError as error:
                line += await self._reader.readexactly(error.consumed)
            if len(line) > most:
                raise UnreadableError(f"a message of more than {most} bytes is not allowed")
            if line.endswith(b"\n"):
                return bytes(line)

    async def say_first(self, words: Hello | Announce, secret: bytes) -> Message:
        """Sends a first message, proves it, and returns the answer.

        Raises:
            LinkLostError: There is no answer.
            UnreadableError: It is not a message.
            UnprovedError: It does not come from a supervisor that has the secret.
            SecretDiffersError: The other side has another secret.
        """
        words = replace(words, nonce=nonce(), at=self.here)
        self.send(words)
        match await self.receive():
            case Challenge(theirs):
                self._seal(secret, CALLER, words.nonce, theirs)
            case Refused(reason):  # Perhaps another version; but anyone could send this.
                raise UnprovedError(f"it refuses this supervisor: {shown(reason)}")
            case _:
                raise UnprovedError("the server there does not ask for proof that this supervisor belongs to its job")
        self.send(words)
        try:
            return await self.receive()
        except LinkLostError as error:
            raise SecretDiffersError(
                "it closes the connection instead of answering; all nodes of a job need the same secret"
            ) from error

    async def ask_for_proof(self, callers_nonce: str, secret: bytes) -> Message:
        """The first message again, with proof, from a caller that has sent it without.

        Raises:
            LinkLostError: It does not come.
            UnprovedError: It does not come from a supervisor that has the secret.
        """
        ours = nonce()
        self.send(Challenge(ours))
        self._seal(secret, LISTENER, callers_nonce, ours)
        return await self.receive()

    def _seal(self, secret: bytes, role: Role, callers_nonce: str, listeners_nonce: str) -> None:
        seals = {one: Seals(secret, one, callers_nonce, listeners_nonce) for one in (CALLER, LISTENER)}
        self._ours = seals.pop(role)
        (self._theirs,) = seals.values()

    async def close(self) -> None:
        """Closes the connection once everything is sent, or the other side accepts no more."""
        self._writer.close()
        # A separate future, since cancelling it would leave it cancelled for the next waiter. Its result is read
        # here, since the closer may be cancelled meanwhile, and asyncio prints errors that nobody has read.
        closing = asyncio.ensure_future(self._writer.wait_closed())
        closing.add_done_callback(lambda closed: closed.cancelled() or closed.exception())
        await asyncio.wait([closing], timeout=PING_SECONDS)
        if not closing.done():
            self.abort()
            await asyncio.wait([closing])

    def abort(self) -> None:
        """Closes the connection, even if something is still to be sent."""
        self._writer.transport.abort()


async def accepted(connection: socket.socket) -> TcpLink:
    """The connection of somebody who has come here.

    Raises:
        OSError: It is gone already.
    """
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=FIRST_BYTES)
    protocol = asyncio.StreamReaderProtocol(reader)
    transport, _ = await loop.connect_accepted_socket(lambda: protocol, connection)
    return TcpLink(reader, asyncio.StreamWriter(transport, protocol, reader, loop))


async def connect(address: str, source: str | None = None) -> TcpLink:
    """A connection to the listener at `host:port`, from the address `source`.

    The other side will look for this supervisor at that address, so if it listens on only one of several addresses,
    it must be that one.

    Raises:
        OSError: Nothing listens, or the name is not known.
    """
    failure = OSError("no such name")
    for host, port in await _resolved(address):
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                return TcpLink(
                    *await asyncio.open_connection(
                        host, port, limit=FIRST_BYTES, local_addr=(source, 0) if source else None
                    )
                )
        except TimeoutError:
            failure = TimeoutError(f"no answer within {CONNECT_SECONDS:.0f} s")
        except OSError as error:
            failure = error
    raise failure


async def _resolved(address: str) -> list[tuple[str, int]]:
    """All hosts and ports that an address resolves to.

    Raises:
        OSError: It is not an address, or the name is not known.
    """
    try:
        host, port = host_and_port(address)
        async with asyncio.timeout(NAME_SECONDS):
            found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except TimeoutError:
        raise TimeoutError(f"its name was not resolved within {NAME_SECONDS:.0f} s") from None
    except ValueError as error:  # Also of a name that none can be.
        raise OSError(str(error)) from error
    return [(str(where[0]), int(where[1])) for *_, where in found]


def not_direct(said: str, seen: str) -> str:
    """Why nothing follows from a connection whose other end says under its seal that it is elsewhere."""
    return f"it gives its address as {shown(said) or 'none'}, but is seen at {seen}: {NOT_DIRECT}"


def why(error: OSError) -> str:
    """An error of `connect`, in words."""
    number = error.errno or 0  # Negative: an unknown name.
    return os.strerror(number) if number > 0 else error.strerror or str(error)


async def answers(host: str, port: int) -> bool:
    """Whether anything listens there."""
    try:
        _, writer = await asyncio.open_connection(host, port)
    except OSError:
        return False
    writer.close()
    return True


class LocalLink:
    """Between rank 0's supervisor as the coordinator, and as a member."""

    here = there = peer_host = ""
    """It has no ends that anybody could see."""

    def __init__(self) -> None:
        self._there: asyncio.Queue[Message | None] = asyncio.Queue()
        self._here: asyncio.Queue[Message | None] = asyncio.Queue()

    def other_end(self) -> "LocalLink":
        """The other side's view of it."""
        other = LocalLink()
        other._there, other._here = self._here, self._there
        return other

    def send(self, message: Message, line: bytes = b"") -> None:  # noqa: ARG002  (nothing is to be encoded)
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


Link = TcpLink | LocalLink
"""Messages to and from one other supervisor, in order."""


def send_all(links: Iterable[Link], message: Message) -> None:
    """Sends the same to many, and encodes it only once: a Start names all nodes, and goes to each of them."""
    line = to_line(message)
    for link in links:
        link.send(message, line)
