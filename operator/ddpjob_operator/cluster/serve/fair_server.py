"""Answers HTTP on a port that anybody may reach: whoever holds many connections keeps nobody else out."""

import asyncio
import contextlib
import resource
import socket
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

SILENT, HEARD = 256, 64
"""How many connections there may be at a port that have asked nothing yet, and that have."""
BACKLOG = 128
"""How many wait in the kernel: fewer than SILENT, or one could have to go before what it asks is read."""
LINE_BYTES = 4096
"""Limit of the request line, and of each header: a token of a service account is one of 1 to 2 KiB."""
CLOSING_SECONDS = 1.0

Answer = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


class _Places:
    """The connections of each host. If there are too many, the host with the most loses its oldest."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._of_host: dict[str, dict[asyncio.Transport, None]] = {}

    def enter(self, host: str, one: asyncio.Transport) -> None:
        self._of_host.setdefault(host, {})[one] = None
        if sum(map(len, self._of_host.values())) > self._most:
            busiest = max(self._of_host, key=lambda each: len(self._of_host[each]))
            oldest = next(iter(self._of_host[busiest]))
            self.leave(busiest, oldest)
            oldest.abort()  # Closed, it would stay for as long as nobody reads the answer.

    def leave(self, host: str, one: asyncio.Transport) -> None:
        of_host = self._of_host.get(host, {})
        of_host.pop(one, None)
        if not of_host:
            self._of_host.pop(host, None)


class FairServer(web.Server):
    """Those that say nothing have places of their own: they push out nobody who has asked something."""

    def __init__(self, answer: Answer, idle_seconds: float) -> None:
        """A connection on which nothing is asked for so long is closed."""
        super().__init__(
            self._attend,
            access_log=None,
            handler_cancellation=True,  # Who has gone away waits no longer.
            keepalive_timeout=idle_seconds,
            max_line_size=LINE_BYTES,
            max_field_size=LINE_BYTES,
        )
        self._answer = answer
        self._silent, self._heard = _Places(SILENT), _Places(HEARD)
        self._of: dict[web.RequestHandler, tuple[str, asyncio.Transport]] = {}
        self._listening: asyncio.Server | None = None

    async def listen(self, port: int) -> int:
        """Answers on all addresses; port 0 takes a free one. Returns the port.

        Raises:
            OSError: It is not available.
        """
        dual = socket.has_dualstack_ipv6()
        family = socket.AF_INET6 if dual else socket.AF_INET
        listener = socket.create_server(("", port), family=family, backlog=BACKLOG, dualstack_ipv6=dual)
        self._listening = await asyncio.get_running_loop().create_server(self, sock=listener, backlog=BACKLOG)
        number: int = listener.getsockname()[1]
        return number

    async def close(self) -> None:
        """Closes all connections."""
        if self._listening is not None:
            self._listening.close()
        await self.shutdown(CLOSING_SECONDS)

    def connection_made(self, handler: web.RequestHandler, transport: asyncio.Transport) -> None:
        """Gives a connection its place."""
        super().connection_made(handler, transport)
        self._of[handler] = str((transport.get_extra_info("peername") or ("",))[0]), transport
        self._silent.enter(*self._of[handler])

    def connection_lost(self, handler: web.RequestHandler, exc: BaseException | None = None) -> None:
        """Frees it."""
        super().connection_lost(handler, exc)
        self._leave(*self._of.pop(handler))

    async def _attend(self, request: web.BaseRequest) -> web.StreamResponse:
        if one := self._of.get(request.protocol):
            self._leave(*one)
            self._heard.enter(*one)
        return await self._answer(request)

    def _leave(self, host: str, one: asyncio.Transport) -> None:
        self._silent.leave(host, one)
        self._heard.leave(host, one)


def take_all_files() -> None:
    """Raises this process's limit on open files as far as it may: the usual 1024 is for those that use select()."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):  # Some systems name a hard limit that they do not grant.
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def text(said: str, status: int = 200, **headers: Any) -> web.Response:
    """An answer of one or more lines."""
    return web.Response(text=f"{said}\n", status=status, headers=headers)
