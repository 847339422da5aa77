"""Addresses as supervisors tell them: `host:port`, with brackets where the host has colons."""

import ipaddress

from ddpjob_trainer.world import MAX_PORT


def address_of(host: str, port: int) -> str:
    """The address of a port of a host."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def host_and_port(address: str) -> tuple[str, int]:
    """What an address is made of; the host without brackets.

    Raises:
        ValueError: It is none.
    """
    host, _, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isdecimal() or not 0 < int(port) <= MAX_PORT:
        raise ValueError(f"{address[:80]!r} is not host:port")
    return host, int(port)


def is_loopback(host: str) -> bool:
    """Whether only this machine itself is reached by it; a name but `localhost` may be anybody's."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
