"""The control port: where supervisors of the same job, and nobody else, talk to this one."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ddpjob_trainer.errors import TrainerError

from .follower import Follower
from .leader import Leader
from .link import LINE_BYTES, LinkLostError, TcpLink
from .messages import Announce, Hello, History, Refused, UnreadableError
from .rendezvous import Rendezvous
from .settings import Settings


@asynccontextmanager
async def control_port(
    settings: Settings, rendezvous: Rendezvous, follower: Follower, leader: Leader | None
) -> AsyncIterator[int]:
    """Serves on the control port as long as the block runs, and gives its number.

    Raises:
        TrainerError: Another program has the port.
    """

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link = TcpLink(reader, writer)
        with contextlib.suppress(LinkLostError, UnreadableError):
            await _answer(link)
        await link.close()

    async def _answer(link: TcpLink) -> None:
        first = await link.receive()
        match first:
            case Hello() if leader is not None:
                await leader.serve(link, first)
            case Hello():
                where = rendezvous.where()
                link.send(where if where is not None else Refused("this is not rank 0", for_good=False))
            case Announce(uid) if uid == settings.uid and leader is None:
                link.send(History(follower.attempt, follower.incidents))
                await rendezvous.announced(first, link.peer_host)
            case _:
                link.send(Refused("these are no first words", for_good=False))

    try:
        server = await asyncio.start_server(serve, settings.listen, settings.control_port, limit=LINE_BYTES)
    except OSError as error:
        raise TrainerError(
            f"cannot listen on port {settings.control_port} for the other supervisors: {error.strerror};"
            " set another DDPJOB_CONTROL_PORT (spec.controlPort)"
        ) from error
    try:
        yield settings.control_port
    finally:
        server.close()
