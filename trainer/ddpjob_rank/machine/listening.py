"""Listens on a port over IPv4 and IPv6, and limits the connections fairly among the hosts that connect."""

import asyncio
import errno
import random
import socket
from collections import defaultdict
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

from .port_holder import holder_of

One = TypeVar("One")

SILENT = 256
"""How many connections that have sent nothing a port keeps open. Each costs only a socket."""

SILENT_SECONDS = 20.0
"""How long a connection may send nothing. Clients send a request within milliseconds, or seconds if they are busy."""

AT_ONCE = 64
"""How many connections are accepted before the event loop runs other callbacks."""

FULL = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
FULL_SECONDS = 0.1
"""How long to wait before the next accept if no socket can be created."""

PORTS = range(10_000, 20_000)
"""Ports for ranks to listen on. They are below the ephemeral ports, which begin at 32768 on Linux
(net.ipv4.ip_local_port_range): any program's outgoing connection could take an ephemeral port before the rank starts.
"""


def listen_on(address: str | None, port: int, backlog: int | None = None) -> socket.socket:
    """A listening socket. Without an address it accepts IPv4, and also IPv6 if the system has it.

    `backlog` is how many connections may wait in the kernel until they are accepted.
    """
    if address:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        return socket.create_server((address, port), family=family, backlog=backlog)
    dual = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if dual else socket.AF_INET
    return socket.create_server(("", port), family=family, backlog=backlog, dualstack_ipv6=dual)


def why_not(error: OSError, port: int) -> str:
    """Explains an error of `listen_on`: why nothing can listen on the port."""
    taken = error.errno == errno.EADDRINUSE
    return f"it is taken by {holder_of(port)}" if taken else error.strerror or str(error)


def free_port(address: str | None) -> int:
    """A random port of PORTS on which nothing listens.

    Raises:
        OSError: Nothing can listen on `address`: for example, it is not an address of this machine.
    """
    while True:
        port = random.SystemRandom().choice(PORTS)
        try:
            listen_on(address, port).close()
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
        else:
            return port


def unmapped_address(host: str) -> str:
    """`host` without the prefix that a socket for both IP versions puts before the address of an IPv4 client."""
    return host.removeprefix("::ffff:")


class Places(Generic[One]):
    """Limits the number of connections. If there are too many, the host with the most connections loses its oldest.

    So a host that floods a port pushes out only its own connections.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._count = 0
        self._of_host: dict[str, dict[One, None]] = {}
        self._with: defaultdict[int, dict[str, None]] = defaultdict(dict)
        """Hosts by their number of connections, so that `enter` finds the busiest host without a search through all
        hosts."""

    def enter(self, host: str, one: One) -> tuple[str, One] | None:
        """Adds a connection of `host`. If there are now too many, removes one, and returns that one with its host."""
        self._of_host.setdefault(host, {})[one] = None
        self._counted(host, +1)
        if self._count <= self._most:
            return None
        busiest = next(iter(self._with[max(self._with)]))
        oldest = next(iter(self._of_host[busiest]))
        self.leave(busiest, oldest)
        return busiest, oldest

    def leave(self, host: str, one: One) -> None:
        """Removes a connection, unless it has been pushed out already."""
        of_host = self._of_host.get(host, {})
        if one in of_host:
            del of_host[one]
            self._counted(host, -1)
            if not of_host:
                del self._of_host[host]

    def _counted(self, host: str, more: int) -> None:
        """Updates the counts after `host` has gained a connection (`more` = 1) or lost one (-1)."""
        self._count += more
        present = len(self._of_host[host])
        if former := self._with.get(present - more):
            former.pop(host, None)
            if not former:
                del self._with[present - more]
        if present:
            self._with[present][host] = None


class Door:
    """Serves each connection as soon as it has sent something; until then it costs only a socket.

    Connections that have sent nothing have their own limit, so even a flood of them from many hosts does not keep out
    a client that sends a request.
    """

    def __init__(
        self,
        listener: socket.socket,
        serve: Callable[[socket.socket], Coroutine[Any, Any, None]],
        *,
        silent: int = SILENT,
        pushed_out: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`serve` is called with each connection that has sent something.

        `pushed_out` is called with the host of a silent connection that was closed to make room.
        """
        self._listener = listener
        self._serve = serve
        self._serving: set[asyncio.Task[None]] = set()
        self._pushed_out = pushed_out
        self._silent = Places[socket.socket](silent)
        self._timers: dict[socket.socket, asyncio.TimerHandle] = {}
        self._loop = asyncio.get_running_loop()
        listener.setblocking(False)
        self._open()

    def close(self) -> None:
        """Stops listening, and closes the connections that have sent nothing."""
        self._loop.remove_reader(self._listener)
        self._listener.close()
        for connection in list(self._timers):
            self._forget(connection)
            connection.close()

    def _open(self) -> None:
        if self._listener.fileno() >= 0:
            self._loop.add_reader(self._listener, self._accept)

    def _accept(self) -> None:
        for _ in range(AT_ONCE):
            try:
                connection, (host, *_) = self._listener.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in FULL:
                    self._loop.remove_reader(self._listener)
                    self._loop.call_later(FULL_SECONDS, self._open)
                return  # After any other error: the client has already closed the connection.
            connection.setblocking(False)
            self._attend(connection, unmapped_address(host))

    def _attend(self, connection: socket.socket, host: str) -> None:
        if pushed_out := self._silent.enter(host, connection):
            busiest, oldest = pushed_out
            self._end(oldest, busiest)
            self._pushed_out(busiest)
        if connection.fileno() >= 0:
            self._timers[connection] = self._loop.call_later(SILENT_SECONDS, self._end, connection, host)
            # Passes the file number, because for an unknown socket object the selector formats an error first, which
            # doubles the cost.
            self._loop.add_reader(connection.fileno(), self._hear, connection, host)

    def _hear(self, connection: socket.socket, host: str) -> None:
        try:
            first_byte = connection.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return
        except OSError:
            first_byte = b""
        if not first_byte:
            self._end(connection, host)
            return
        self._silent.leave(host, connection)
        self._forget(connection)
        serving = self._loop.create_task(self._serve(connection))
        self._serving.add(serving)  # The event loop keeps only a weak reference to a task.
        serving.add_done_callback(self._serving.discard)

    def _end(self, connection: socket.socket, host: str) -> None:
        self._silent.leave(host, connection)
        self._forget(connection)
        connection.close()

    def _forget(self, connection: socket.socket) -> None:
        if timer := self._timers.pop(connection, None):
            timer.cancel()
            self._loop.remove_reader(connection.fileno())
