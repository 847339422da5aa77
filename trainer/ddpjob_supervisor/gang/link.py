"""A connection between a member and the coordinator: over TCP, or within rank 0's own supervisor."""

import asyncio
import os
import socket
from collections.abc import Iterable
from functools import partial

from ddpjob_rank.machine.listening import unmapped_address
from msgspec.structs import replace

from ddpjob_supervisor.watch.threads import in_thread

from .addresses import address_of, host_and_port
from .messages import Announce, Challenge, Hello, Message, Refused, UnreadableError, from_line, to_line
from .once import shown
from .proof import CALLER, LISTENER, Role, Seals, SecretDiffersError, UnprovedError, nonce

LINE_BYTES = 2 << 20
"""The maximum length of a line. An archive of 1 MiB has 1.4 MiB in base64."""

FIRST_BYTES = 4096
"""The maximum length of a line from a peer that has not proved itself yet."""


SILENT_SECONDS = 10.0
"""A peer that has sent nothing for this long counts as gone: a machine that loses power does not close its
connections."""

PING_SECONDS = 1.0

CONNECT_SECONDS = 2.0
"""A peer that has not accepted a connection within this time counts as gone: packets to a lost pod are dropped."""

NAME_SECONDS = 30.0
"""How long a name lookup may take: a resolver waits 5 s for a dead server, and does so for each search domain."""

NOT_DIRECT = "a relay, a proxy or NAT is between the supervisors, which have to reach each other directly"
"""Why a relayed connection is refused. A relay forwards valid seals without having the secret, so it would be
mistaken for the supervisor that made the seals."""


class LinkLostError(Exception):
    """The connection to the other supervisor is lost."""


class TcpLink:
    """A connection over the control port."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._ours: Seals | None = None
        self._theirs: Seals | None = None
        connection = writer.get_extra_info("socket")
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    @property
    def here(self) -> str:
        """The address of this end of the connection, as `host:port`."""
        return address_of(*self._end("sockname"))

    @property
    def there(self) -> str:
        """The address of the other end of the connection, as `host:port`."""
        return address_of(*self._end("peername"))

    @property
    def peer_host(self) -> str:
        """The other side's IP address; empty if the connection ended before the address could be read."""
        return self._end("peername")[0]

    def _end(self, name: str) -> tuple[str, int]:
        host, port, *_ = self._writer.get_extra_info(name) or ("", 0)
        return unmapped_address(str(host)), port

    def send(self, message: Message, line: bytes = b"") -> None:
        """Sends a message. Does nothing if the other side is gone: `receive` raises an error then.

        Callers that have already encoded the message pass it as `line`.
        """
        if not self._writer.is_closing():
            line = line or to_line(message)
            self._writer.write(self._ours.sealed(line) if self._ours else line)

    async def receive(self) -> Message:
        """Waits for the next message.

        Raises:
            LinkLostError: The connection is lost.
            UnreadableError: What was received is not a message.
            UnprovedError: Its seal is wrong.
        """
        try:
            async with asyncio.timeout(SILENT_SECONDS):
                line = await self._line(LINE_BYTES if self._theirs else FIRST_BYTES)
        except (OSError, EOFError) as error:  # A TimeoutError is an OSError.
            raise LinkLostError from error
        return from_line(self._theirs.opened(line) if self._theirs else line)

    async def _line(self, most: int) -> bytes:
        """Reads the next line, of at most `most` bytes.

        The reader buffers only FIRST_BYTES, because the peer may be a stranger.
        """
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
        """Sends a first message, sends it again with proof, and returns the answer.

        Raises:
            LinkLostError: There is no answer.
            UnreadableError: The answer is not a message.
            UnprovedError: The answer does not come from a supervisor that has the secret.
            SecretDiffersError: The other side has a different secret.
        """
        words = replace(words, nonce=nonce(), at=self.here)
        self.send(words)
        match await self.receive():
            case Challenge(theirs):
                self._seal(secret, CALLER, words.nonce, theirs)
            case Refused(reason):  # A refusal at this point carries no proof, so the reason in it may be false.
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
        """Asks a caller to send its first message again, with proof, and returns that message.

        Raises:
            LinkLostError: The caller does not send it.
            UnprovedError: The caller does not have the job's secret.
        """
        ours = nonce()
        self.send(Challenge(ours))
        self._seal(secret, LISTENER, callers_nonce, ours)
        return await self.receive()

    def _seal(self, secret: bytes, role: Role, callers_nonce: str, listeners_nonce: str) -> None:
        seals = {sender: Seals(secret, sender, callers_nonce, listeners_nonce) for sender in (CALLER, LISTENER)}
        self._ours = seals.pop(role)
        (self._theirs,) = seals.values()

    async def close(self) -> None:
        """Closes the connection after sending everything, or if the other side accepts nothing for a while.

        The limit is PING_SECONDS.
        """
        self._writer.close()
        # `wait_closed` gets its own future, because cancelling it directly would also cancel the next waiter. The
        # callback reads the future's error, because asyncio prints errors that nobody has read, as when this task is
        # cancelled.
        closing = asyncio.ensure_future(self._writer.wait_closed())
        closing.add_done_callback(lambda closed: closed.cancelled() or closed.exception())
        await asyncio.wait([closing], timeout=PING_SECONDS)
        if not closing.done():
            self.abort()
            await asyncio.wait([closing])

    def abort(self) -> None:
        """Closes the connection immediately, and discards what has not been sent."""
        self._writer.transport.abort()


async def accepted(connection: socket.socket) -> TcpLink:
    """The link for a connection that the control port has accepted.

    Raises:
        OSError: The connection is already closed.
    """
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=FIRST_BYTES)
    protocol = asyncio.StreamReaderProtocol(reader)
    transport, _ = await loop.connect_accepted_socket(lambda: protocol, connection)
    return TcpLink(reader, asyncio.StreamWriter(transport, protocol, reader, loop))


async def connect(address: str, source: str | None = None) -> TcpLink:
    """Connects to the listener at `address`, a `host:port`, from the local address `source`.

    The other side assumes that this supervisor listens on the address that it connects from. So a supervisor that
    listens on only one address has to pass it as `source`.

    Raises:
        OSError: Nothing listens there, or the name is unknown.
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
        OSError: The text is not an address, or the name is unknown.
    """
    try:
        host, port = host_and_port(address)
        async with asyncio.timeout(NAME_SECONDS):
            # Not the event loop's own lookup: asyncio waits for it when the loop closes, even if the name server
            # hangs.
            found = await in_thread(partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM))
    except TimeoutError:
        raise TimeoutError(f"its name was not resolved within {NAME_SECONDS:.0f} s") from None
    except ValueError as error:  # The port or the name is not valid, such as a name with too long a label.
        raise OSError(str(error)) from error
    return [(str(endpoint[0]), int(endpoint[1])) for *_, endpoint in found]


def not_direct(said: str, seen: str) -> str:
    """Explains why a connection is refused: the peer's sealed message gives another address than the connection."""
    return f"it gives its address as {shown(said) or 'none'}, but is seen at {seen}: {NOT_DIRECT}"


def why(error: OSError) -> str:
    """The reason for an error of `connect`, without the address."""
    number = error.errno or 0  # Errors of getaddrinfo, such as an unknown name, have negative numbers.
    return os.strerror(number) if number > 0 else error.strerror or str(error)


async def answers(host: str, port: int) -> bool:
    """Whether something accepts connections on the port."""
    try:
        link = await connect(address_of(host, port))
    except OSError:
        return False
    await link.close()
    return True


class LocalLink:
    """The link within rank 0's supervisor, which is both the coordinator and a member."""

    here = there = peer_host = ""
    """Empty: this link has no network addresses."""

    def __init__(self) -> None:
        self._there: asyncio.Queue[Message | None] = asyncio.Queue()
        self._here: asyncio.Queue[Message | None] = asyncio.Queue()

    def other_end(self) -> "LocalLink":
        """Returns the link as the other side uses it."""
        other = LocalLink()
        other._there, other._here = self._here, self._there
        return other

    def send(self, message: Message, line: bytes = b"") -> None:  # noqa: ARG002  (nothing is to be encoded)
        """Sends a message."""
        self._there.put_nowait(message)

    async def receive(self) -> Message:
        """Waits for the next message.

        Raises:
            LinkLostError: The other side has closed the link.
        """
        message = await self._here.get()
        if message is None:
            raise LinkLostError
        return message

    async def close(self) -> None:
        """Closes the link."""
        self._there.put_nowait(None)


Link = TcpLink | LocalLink
"""A connection to one other supervisor. Messages arrive in the order in which they were sent."""


def send_all(links: Iterable[Link], message: Message) -> None:
    """Sends a message on many links but encodes it once: a Start goes to all nodes, and names all of them."""
    line = to_line(message)
    for link in links:
        link.send(message, line)
