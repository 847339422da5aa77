"""An HTTP server for a port that anybody may reach: a client with many connections cannot keep others out."""

import asyncio
import contextlib
import resource
import socket
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

SILENT, HEARD = 256, 64
"""How many connections a port may have that have sent no request yet, and how many that have sent one."""
BACKLOG = 128
"""How many connections may wait in the kernel: fewer than SILENT, because otherwise a connection could be closed
before its request is read."""
LINE_BYTES = 4096
"""The limit of the request line and of each header: the header with a service account's token has 1 to 2 KiB."""
CLOSING_SECONDS = 1.0

Answer = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


class _Places:
    """A limited number of connections. If there are too many, the host with the most loses its oldest."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._of_host: dict[str, dict[asyncio.Transport, None]] = {}

    def enter(self, host: str, one: asyncio.Transport) -> None:
        self._of_host.setdefault(host, {})[one] = None
        if sum(map(len, self._of_host.values())) > self._most:
            busiest = max(self._of_host, key=lambda each: len(self._of_host[each]))
            oldest = next(iter(self._of_host[busiest]))
            self.leave(busiest, oldest)
            oldest.abort()  # `close` would first wait until the client has read the pending answer.

    def leave(self, host: str, one: asyncio.Transport) -> None:
        of_host = self._of_host.get(host, {})
        of_host.pop(one, None)
        if not of_host:
            self._of_host.pop(host, None)


class FairServer(web.Server):
    """A server with two limits: connections without a request cannot push out those that have sent one."""

    def __init__(self, answer: Answer, idle_seconds: float) -> None:
        """`idle_seconds`: how long a connection may stay without a request before it is closed."""
        super().__init__(
            self._attend,
            access_log=None,
            handler_cancellation=True,  # A request whose client has disconnected is not worked on.
            keepalive_timeout=idle_seconds,
            max_line_size=LINE_BYTES,
            max_field_size=LINE_BYTES,
        )
        self._answer = answer
        self._silent, self._heard = _Places(SILENT), _Places(HEARD)
        self._of: dict[web.RequestHandler, tuple[str, asyncio.Transport]] = {}
        self._listening: asyncio.Server | None = None

    async def listen(self, port: int) -> int:
        """Listens on all addresses; port 0 takes a free port. Returns the port.

        Raises:
            OSError: the port is not available.
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
        """Counts a new connection, as one that has sent no request yet."""
        super().connection_made(handler, transport)
        self._of[handler] = str((transport.get_extra_info("peername") or ("",))[0]), transport
        self._silent.enter(*self._of[handler])

    def connection_lost(self, handler: web.RequestHandler, exc: BaseException | None = None) -> None:
        """Stops counting a connection."""
        super().connection_lost(handler, exc)
        self._leave(*self._of.pop(handler))

    async def _attend(self, request: web.BaseRequest) -> web.StreamResponse:
        if connection := self._of.get(request.protocol):
            self._leave(*connection)
            self._heard.enter(*connection)
        return await self._answer(request)

    def _leave(self, host: str, one: asyncio.Transport) -> None:
        self._silent.leave(host, one)
        self._heard.leave(host, one)


def take_all_files() -> None:
    """Raises the process's limit on open files to the hard limit; the usual 1024 is only for users of select()."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):  # Some systems report a hard limit that they do not grant.
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def text(said: str, status: int = 200, **headers: Any) -> web.Response:
    """A plain-text answer of one or more lines."""
    return web.Response(text=f"{said}\n", status=status, headers=headers)
