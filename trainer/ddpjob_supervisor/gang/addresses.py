"""Addresses in the form in which supervisors exchange them: `host:port`, with brackets if the host has colons."""

import ipaddress

from ddpjob_rank.world import MAX_PORT


def address_of(host: str, port: int) -> str:
    """The address of a port of a host."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def host_and_port(address: str) -> tuple[str, int]:
    """The parts of an address; the host without brackets.

    Raises:
        ValueError: It is not an address.
    """
    host, _, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isdecimal() or not 0 < int(port) <= MAX_PORT:
        raise ValueError(f"{address[:80]!r} is not host:port")
    return host, int(port)


def is_loopback(host: str) -> bool:
    """Whether it reaches only this machine; a name other than `localhost` may belong to any machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
