"""An HTTP server for a port that is open to anybody. A client with many connections cannot block other clients."""

import asyncio
import contextlib
import resource
import socket
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

WITHOUT_REQUEST, WITH_REQUEST = 256, 64
"""The limits on a port's connections that have not sent a request yet, and on those that have sent one."""
BACKLOG = 128
"""How many connections may wait in the kernel. The number must be less than WITHOUT_REQUEST, because otherwise a
connection could be closed before its request is read."""
LINE_BYTES = 4096
"""The limit on the length of the request line and of each header. A header with a service account's token has 1 to 2
KiB."""
CLOSING_SECONDS = 1.0

Answer = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


class _Connections:
    """A limited number of connections. If there are too many, the oldest connection of the busiest host is closed."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._of_host: dict[str, dict[asyncio.Transport, None]] = {}

    def add(self, host: str, transport: asyncio.Transport) -> None:
        self._of_host.setdefault(host, {})[transport] = None
        if sum(map(len, self._of_host.values())) > self._most:
            busiest = max(self._of_host, key=lambda each: len(self._of_host[each]))
            oldest = next(iter(self._of_host[busiest]))
            self.remove(busiest, oldest)
            oldest.abort()  # `close` would first wait until the client has read the pending answer.

    def remove(self, host: str, transport: asyncio.Transport) -> None:
        of_host = self._of_host.get(host, {})
        of_host.pop(transport, None)
        if not of_host:
            self._of_host.pop(host, None)


class FairServer(web.Server):
    """A server with two limits, so that connections without a request cannot displace those that have sent one."""

    def __init__(self, answer: Answer, idle_seconds: float) -> None:
        """`idle_seconds` is how long a connection may exist without a request before it is closed."""
        super().__init__(
            self._handle,
            access_log=None,
            handler_cancellation=True,  # Stops work on requests of disconnected clients.
            keepalive_timeout=idle_seconds,
            max_line_size=LINE_BYTES,
            max_field_size=LINE_BYTES,
        )
        self._answer = answer
        self._without_request, self._with_request = _Connections(WITHOUT_REQUEST), _Connections(WITH_REQUEST)
        self._clients: dict[web.RequestHandler, tuple[str, asyncio.Transport]] = {}
        self._listening: asyncio.Server | None = None

    async def listen(self, port: int) -> int:
        """Listens on all addresses. Port 0 means any free port. Returns the port.

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
        """Adds a new connection to those that have not sent a request yet."""
        super().connection_made(handler, transport)
        self._clients[handler] = str((transport.get_extra_info("peername") or ("",))[0]), transport
        self._without_request.add(*self._clients[handler])

    def connection_lost(self, handler: web.RequestHandler, exc: BaseException | None = None) -> None:
        """Stops counting a connection."""
        super().connection_lost(handler, exc)
        self._remove(*self._clients.pop(handler))

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        if connection := self._clients.get(request.protocol):
            self._remove(*connection)
            self._with_request.add(*connection)
        return await self._answer(request)

    def _remove(self, host: str, transport: asyncio.Transport) -> None:
        self._without_request.remove(host, transport)
        self._with_request.remove(host, transport)


def raise_open_files_limit() -> None:
    """Raises the limit on open files to the hard limit. Only programs that use select() need a lower limit."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):  # Some systems report a hard limit that they do not grant.
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def text(content: str, status: int = 200, **headers: Any) -> web.Response:
    """Returns a plain-text answer of one or more lines."""
    return web.Response(text=f"{content}\n", status=status, headers=headers)
