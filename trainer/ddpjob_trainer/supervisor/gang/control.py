"""The control port: where supervisors of the same job, and nobody else, talk to this one."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ddpjob_trainer.errors import TrainerError

from .follower import Follower
from .leader import Leader
from .link import LINE_BYTES, LinkLostError, TcpLink
from .messages import PROTOCOL, Announce, Hello, History, Refused, UnreadableError
from .once import Once, shown
from .rendezvous import RELEASE, Rendezvous
from .settings import Settings

STRANGERS = 64
"""So many connections there may be beside each node's own and a second one, that takes its place."""


@asynccontextmanager
async def control_port(
    settings: Settings, rendezvous: Rendezvous, follower: Follower, leader: Leader | None
) -> AsyncIterator[int]:
    """Serves on the control port as long as the block runs, and gives its number.

    Raises:
        TrainerError: Another program has the port.
    """
    door = _Door(settings, rendezvous, follower, leader)
    try:
        server = await asyncio.start_server(
            door.serve, settings.listen, settings.control_port, limit=LINE_BYTES, backlog=door.room
        )
    except OSError as error:
        other = "DDPJOB_CONTROL_PORT (spec.controlPort)" if settings.in_a_job else "MASTER_PORT, beside which it is"
        raise TrainerError(
            f"cannot listen on port {settings.control_port} for the other supervisors: {error.strerror};"
            f" set another {other}"
        ) from error
    try:
        yield settings.control_port
    finally:
        server.close()


class _Door:
    """Answers the first words of whoever comes, and knows its own from strangers."""

    def __init__(self, settings: Settings, rendezvous: Rendezvous, follower: Follower, leader: Leader | None) -> None:
        self.room = 2 * settings.nodes + STRANGERS
        """More connections are closed at once."""
        self._settings = settings
        self._rendezvous = rendezvous
        self._follower = follower
        self._leader = leader
        self._open = 0
        self._once = Once()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Listens to one connection until it ends."""
        link = TcpLink(reader, writer)
        if self._open >= self.room:
            link.abort()
            return
        self._open += 1
        try:
            await self._answer(link, await link.receive())
        except LinkLostError:
            pass  # It has gone again.
        except UnreadableError as error:
            host = link.peer_host
            self._once.warn(f"{host} talks to the control port, and is not understood: {error}", about=host)
        finally:
            await link.close()
            self._open -= 1

    async def _answer(self, link: TcpLink, first: object) -> None:
        match first:
            case Hello(uid) | Announce(uid) if uid != self._settings.uid:
                link.send(Refused("this is another job's", for_good=False))
            case Hello(release=release, protocol=protocol) if protocol != PROTOCOL:
                theirs, ours = f"{release} (protocol {protocol})", f"{RELEASE} (protocol {PROTOCOL})"
                why = f"its version {shown(theirs)} cannot work with {ours}: all nodes must run the same image"
                self._once.warn(f"a supervisor that calls itself rank {first.node} was refused: {why}")
                link.send(Refused(why, for_good=True))
            case Hello() if self._leader is not None:
                await self._leader.serve(link, first)
            case Hello():
                where = self._rendezvous.where()
                link.send(where if where is not None else Refused("this is not rank 0", for_good=False))
            case Announce() if self._leader is None:
                link.send(History(self._follower.attempt, self._follower.past))
                await self._rendezvous.announced(first, link.peer_host)
            case _:
                link.send(Refused("these are no first words", for_good=False))
