"""Listens on a port, on all available versions of IP, and is fair to the hosts that connect to it."""

import asyncio
import errno
import random
import socket
from collections import defaultdict
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

One = TypeVar("One")

SILENT = 256
"""How many connections that have said nothing a port keeps: each costs a socket, and nothing else."""

SILENT_SECONDS = 20.0
"""How long one may say nothing: whoever wants something says so in milliseconds, or seconds on a busy machine."""

AT_ONCE = 64
"""So many connections are taken before everything else gets a turn."""

FULL = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
FULL_SECONDS = 0.1
"""How long to wait if there is no room for another socket."""

PORTS = range(10_000, 20_000)
"""Below those that systems assign by themselves (by default from 32768 on Linux, net.ipv4.ip_local_port_range): a
connection of any program could take such a port before the rank that should listen there has started."""


def listen_on(address: str | None, port: int, backlog: int | None = None) -> socket.socket:
    """A socket that listens: for both IPv4 and IPv6, if there is IPv6 and no address is given.

    `backlog` is how many connections wait in the kernel until they are taken.

    Raises:
        OSError: The port is not available.
    """
    if address:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        return socket.create_server((address, port), family=family, backlog=backlog)
    dual = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if dual else socket.AF_INET
    return socket.create_server(("", port), family=family, backlog=backlog, dualstack_ipv6=dual)


def free_port(address: str | None) -> int:
    """A random one of PORTS on which nothing listens.

    Raises:
        OSError: Nothing may listen at the address: for example, it is not one of this machine.
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


def plain(host: str) -> str:
    """A host's address as that of IPv4 if it is one: a socket for both versions shows it as one of IPv6."""
    return host.removeprefix("::ffff:")


class Places(Generic[One]):
    """So many connections may be in. If there are too many, the host with the most loses its oldest.

    So a host that floods a port pushes out only itself.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._count = 0
        self._of_host: dict[str, dict[One, None]] = {}
        self._with: defaultdict[int, dict[str, None]] = defaultdict(dict)
        """The hosts that have so many: a flood from many hosts must not cost a look at all of them for each."""

    def enter(self, host: str, one: One) -> tuple[str, One] | None:
        """Adds a connection of a host. Returns the one that has to go if there are too many, with its host."""
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
        """Keeps count after a host has got one, or has one less."""
        self._count += more
        present = len(self._of_host[host])
        if former := self._with.get(present - more):
            former.pop(host, None)
            if not former:
                del self._with[present - more]
        if present:
            self._with[present][host] = None


class Door:
    """Lets in connections that say something. Those that do not cost a socket each, and have places of their own.

    So many may connect from many hosts and say nothing, and keep out nobody who has something to say.
    """

    def __init__(
        self,
        listener: socket.socket,
        serve: Callable[[socket.socket], Coroutine[Any, Any, None]],
        *,
        silent: int = SILENT,
        pushed_out: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`serve` serves one that has said something; `pushed_out` hears from which host one had to go."""
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
        """Listens no more, and ends the connections that have said nothing."""
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
                return  # Otherwise it is gone already.
            connection.setblocking(False)
            self._attend(connection, plain(host))

    def _attend(self, connection: socket.socket, host: str) -> None:
        if pushed_out := self._silent.enter(host, connection):
            busiest, oldest = pushed_out
            self._end(oldest, busiest)
            self._pushed_out(busiest)
        if connection.fileno() >= 0:
            self._timers[connection] = self._loop.call_later(SILENT_SECONDS, self._end, connection, host)
            # By number: of a socket that it does not know yet a selector makes a text, which costs as much again.
            self._loop.add_reader(connection.fileno(), self._hear, connection, host)

    def _hear(self, connection: socket.socket, host: str) -> None:
        try:
            said = connection.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return
        except OSError:
            said = b""
        if not said:
            self._end(connection, host)
            return
        self._silent.leave(host, connection)
        self._forget(connection)
        serving = self._loop.create_task(self._serve(connection))
        self._serving.add(serving)  # The loop itself would forget it.
        serving.add_done_callback(self._serving.discard)

    def _end(self, connection: socket.socket, host: str) -> None:
        self._silent.leave(host, connection)
        self._forget(connection)
        connection.close()

    def _forget(self, connection: socket.socket) -> None:
        if timer := self._timers.pop(connection, None):
            timer.cancel()
            self._loop.remove_reader(connection.fileno())
