"""Listens on a port, on all available versions of IP."""

import asyncio
import errno
import random
import socket

PORTS = range(10_000, 20_000)
"""Below those that systems assign by themselves (by default from 32768 on Linux, net.ipv4.ip_local_port_range): a
connection of any program could take such a port before the rank that should listen there has started."""


def listen_on(address: str | None, port: int) -> socket.socket:
    """A socket that listens: for both IPv4 and IPv6, if there is IPv6 and no address is given.

    Raises:
        OSError: The port is not available.
    """
    if address:
        return socket.create_server((address, port), family=socket.AF_INET6 if ":" in address else socket.AF_INET)
    dual = socket.has_dualstack_ipv6()
    return socket.create_server(("", port), family=socket.AF_INET6 if dual else socket.AF_INET, dualstack_ipv6=dual)


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


class Closed(asyncio.Protocol):
    """A connection beyond the limit."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Closes it."""
        transport.close()
