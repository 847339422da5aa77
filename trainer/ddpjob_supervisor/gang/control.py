"""The control port, on which only supervisors of the same job can talk to this one."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ddpjob_rank.errors import PortTakenError
from ddpjob_rank.machine.listening import SILENT, Door, Places, listen_on, why_not

from .coordinator_service import CoordinatorService
from .link import NOT_DIRECT, LinkLostError, TcpLink, accepted, not_direct
from .membership import Follower
from .messages import PROTOCOL, Announce, Hello, History, Message, Refused, UnreadableError
from .once import Once, shown
from .proof import UnprovedError
from .rendezvous import RELEASE, Rendezvous
from .settings import Settings

STRANGERS = 64
"""How many connections whose callers have sent something, but not yet proved themselves, may be open in addition to
one per node."""

BACKLOG = 512
"""How many connections, in addition to one per node, may wait in the kernel while this process gets no CPU.

If the queue is full, the kernel drops a connection's first packet, which the sender repeats only after a second. A
shorter queue would let a few hundred strangers per second keep a supervisor out."""

PROOF_SECONDS = 20.0
"""How long a caller may take to prove itself. A supervisor takes milliseconds, or seconds on a busy machine."""


@asynccontextmanager
async def control_port(
    settings: Settings, rendezvous: Rendezvous, follower: Follower, service: CoordinatorService | None
) -> AsyncIterator[int]:
    """Serves the control port while the `async with` block runs, and yields the port's number.

    Raises:
        PortTakenError: Another program uses the port.
    """
    assert settings.secret, "otherwise anybody who can connect is one of the gang"
    listener = _Listener(settings, rendezvous, follower, service)
    try:
        listening = listen_on(settings.listen, settings.control_port, BACKLOG + settings.nodes)
    except OSError as error:
        of_the_job, by_hand = "DDPJOB_CONTROL_PORT (spec.network.controlPort)", "MASTER_PORT: this port follows it"
        other = of_the_job if settings.in_a_job else by_hand
        raise PortTakenError(
            f"cannot listen on port {settings.control_port} for the other supervisors:"
            f" {why_not(error, settings.control_port)}; set another {other}"
        ) from error
    door = Door(listening, listener.serve, silent=SILENT + settings.nodes, pushed_out=listener.pushed_out)
    try:
        yield settings.control_port
    finally:
        door.close()


class _Listener:
    """Answers a caller's first message, once the caller has proved that it belongs to the job."""

    def __init__(
        self, settings: Settings, rendezvous: Rendezvous, follower: Follower, service: CoordinatorService | None
    ) -> None:
        self._settings = settings
        self._rendezvous = rendezvous
        self._follower = follower
        self._service = service
        self._unproved = Places[TcpLink](STRANGERS + settings.nodes)
        self._once = Once()

    def pushed_out(self, host: str) -> None:
        """Logs that a connection from `host` is closed because there are too many."""
        self._once.warn(
            f"too many connections to the control port are not yet authenticated: closing the one from {host}"
        )

    async def serve(self, connection: socket.socket) -> None:
        """Serves one connection, on which data has arrived, until it is closed."""
        try:
            link = await accepted(connection)
        except OSError:
            return  # The caller has already closed the connection.
        host = link.peer_host
        try:
            await self._answer(link, await self._proved(link))
        except LinkLostError:
            pass  # The caller has closed the connection.
        except UnprovedError as error:
            self._once.warn(f"refused a connection to the control port from {host}: {error}", about=f"{host} knocks")
        except UnreadableError as error:
            self._once.warn(
                f"closed a connection to the control port from {host}, because its message is invalid: {error}",
                about=host,
            )
        finally:
            await link.close()

    async def _proved(self, link: TcpLink) -> Message:
        """Waits for a caller's first message, and for the proof that it comes from a supervisor of this job."""
        if pushed_out := self._unproved.enter(link.peer_host, link):
            busiest, oldest = pushed_out
            self.pushed_out(busiest)
            oldest.abort()
        try:
            async with asyncio.timeout(PROOF_SECONDS):
                match await link.receive():
                    case Hello(nonce=nonce) | Announce(nonce=nonce):
                        return await link.ask_for_proof(nonce, self._settings.secret)
                    case _:
                        raise UnprovedError("its first message is not valid here")
        except TimeoutError:
            raise UnprovedError(
                f"it has not proved within {PROOF_SECONDS:.0f} s that it belongs to this job"
            ) from None
        finally:
            self._unproved.leave(link.peer_host, link)

    def _refuse_version(self, link: TcpLink, hello: Hello) -> None:
        theirs, ours = f"{hello.release} (protocol {hello.protocol})", f"{RELEASE} (protocol {PROTOCOL})"
        why = f"its version {shown(theirs)} cannot work with {ours}: all nodes must run the same image"
        self._once.warn(f"a supervisor that calls itself node {hello.node} was refused: {why}")
        link.send(Refused(why, for_good=True))

    async def _answer(self, link: TcpLink, first: Message) -> None:
        match first:
            case Hello(uid) | Announce(uid) if uid != self._settings.uid:
                link.send(Refused("this supervisor belongs to another job", for_good=False))
            case Hello(protocol=protocol) if protocol != PROTOCOL:
                self._refuse_version(link, first)
            case Hello(at=at) | Announce(at=at) if at != link.there:
                refused = f"a supervisor was refused at the control port: {not_direct(at, link.there)}"
                self._once.warn(refused, about=f"{link.peer_host} relays")
                link.send(Refused(NOT_DIRECT, for_good=False))
            case Hello() if self._service is not None:
                await self._service.serve(link, first)
            case Hello():
                where = self._rendezvous.where()
                link.send(where if where is not None else Refused("this is not rank 0", for_good=False))
            case Announce() if self._service is None:
                link.send(History(self._follower.attempt, self._follower.past))
                await self._rendezvous.announced(first, link.peer_host)
            case _:
                link.send(Refused("its first message is not valid here", for_good=False))
