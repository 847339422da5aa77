"""Addresses as supervisors exchange them: `host:port`, with brackets around a host that contains colons."""

import ipaddress

from ddpjob_rank.world import MAX_PORT


def address_of(host: str, port: int) -> str:
    """The host and the port as one address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def host_and_port(address: str) -> tuple[str, int]:
    """The host, without brackets, and the port of an address.

    Raises:
        ValueError: The text is not an address.
    """
    host, _, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isdecimal() or not 0 < int(port) <= MAX_PORT:
        raise ValueError(f"{address[:80]!r} is not host:port")
    return host, int(port)


def is_loopback(host: str) -> bool:
    """Whether the host is this machine's loopback. The only name that counts is `localhost`."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
