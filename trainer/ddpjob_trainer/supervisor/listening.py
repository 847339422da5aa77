"""Taking a port, on whatever versions of IP there are."""

import socket


def listen_on(address: str | None, port: int) -> socket.socket:
    """A socket that listens: for IPv4 and IPv6 alike, where there is IPv6 and no address is given.

    Raises:
        OSError: The port is not to be had.
    """
    if address:
        return socket.create_server((address, port), family=socket.AF_INET6 if ":" in address else socket.AF_INET)
    dual = socket.has_dualstack_ipv6()
    return socket.create_server(("", port), family=socket.AF_INET6 if dual else socket.AF_INET, dualstack_ipv6=dual)
