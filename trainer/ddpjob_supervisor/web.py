"""Serves HTTP on a port that anybody can reach. No single host can use up the connections."""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web
from ddpjob_rank.machine.listening import Door, Places, unmapped_address

CLOSING_SECONDS = 1.0

Answer = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


class FairServer(web.Server):
    """An HTTP server that limits the number of connections that have sent something.

    If there are too many, the host with the most connections loses its oldest one.
    """

    def __init__(self, answer: Answer, connections: int, **options: Any) -> None:
        """`connections` is the limit, and `options` are those of aiohttp's server."""
        super().__init__(answer, access_log=None, **options)
        self._places = Places[asyncio.Transport](connections)
        self._of: dict[web.RequestHandler, tuple[str, asyncio.Transport]] = {}
        self._door: Door | None = None

    def listen(self, listener: socket.socket) -> None:
        """Serves the clients that connect to `listener`."""
        self._door = Door(listener, self._serve)

    async def close(self) -> None:
        """Closes all connections."""
        if self._door is not None:
            self._door.close()
        await self.shutdown(CLOSING_SECONDS)

    async def _serve(self, connection: socket.socket) -> None:
        await asyncio.get_running_loop().connect_accepted_socket(self, connection)

    def connection_made(self, handler: web.RequestHandler, transport: asyncio.Transport) -> None:
        """Counts a new connection, and aborts the one that has to make room for it."""
        super().connection_made(handler, transport)
        host = unmapped_address(str((transport.get_extra_info("peername") or ("",))[0]))
        self._of[handler] = host, transport
        if pushed_out := self._places.enter(host, transport):
            pushed_out[1].abort()  # `close()` would wait until the client has read the answer.

    def connection_lost(self, handler: web.RequestHandler, exc: BaseException | None = None) -> None:
        """Frees the place of a closed connection."""
        super().connection_lost(handler, exc)
        if handler in self._of:
            self._places.leave(*self._of.pop(handler))
