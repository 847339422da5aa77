"""How this machine is connected, and which interface it uses to reach another machine, according to the kernel."""

import ctypes
import fcntl
import ipaddress
import socket
import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

SIOCGIFCONF = 0x8912
"""Requests the names and the IPv4 addresses of all interfaces (netdevice(7))."""

ENTRY_BYTES, NAME_BYTES, ADDRESS = 40, 16, slice(20, 24)
"""The size of an entry of the answer, the size of the interface's name in it, and the position of the IPv4
address."""

ROOM_BYTES = 256 * ENTRY_BYTES
ARPHRD_INFINIBAND = "32"


@dataclass(frozen=True, slots=True)
class Fabric:
    """The connections of this machine to others besides Ethernet; empty if there are none."""

    infiniband: tuple[str, ...] = ()
    """The machine's InfiniBand devices, without devices that run over Ethernet (RoCE)."""
    over_ip: tuple[str, ...] = ()
    """Interfaces that carry IP over InfiniBand."""


def fabric(root: Path = Path("/")) -> Fabric:
    """The InfiniBand devices and interfaces that the kernel lists."""
    layers = sorted((root / "sys/class/infiniband").glob("*/ports/*/link_layer"))
    kinds = sorted((root / "sys/class/net").glob("*/type"))
    return Fabric(
        tuple(dict.fromkeys(file.parts[-4] for file in layers if _says(file, "InfiniBand"))),
        tuple(file.parts[-2] for file in kinds if _says(file, ARPHRD_INFINIBAND)),
    )


def address_towards(host: str, port: int) -> str | None:
    """This machine's address on the route to `host`; None if there is no route. Sends nothing to the host."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)
    except OSError:
        return None
    for family, kind, protocol, _, address in found:
        with socket.socket(family, kind, protocol) as probe:
            try:
                probe.connect(address)
            except OSError:
                continue
            return str(probe.getsockname()[0])
    return None


def is_loopback(address: str) -> bool:
    """Whether an address is a loopback address, with which only this machine itself can be reached."""
    return ipaddress.ip_address(address).is_loopback


def interface_of(address: str) -> str | None:
    """The interface that has an address; None if this cannot be found out."""
    if sys.platform != "linux":
        return None
    wanted = ipaddress.ip_address(address)
    found = _ipv4() if wanted.version == 4 else _ipv6()  # noqa: PLR2004
    return next((name for name, other in found if other == wanted), None)


def _ipv4() -> Iterator[tuple[str, ipaddress.IPv4Address]]:
    room = bytearray(ROOM_BYTES)
    pointer = (ctypes.c_char * ROOM_BYTES).from_buffer(room)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        asked = struct.pack("iL", ROOM_BYTES, ctypes.addressof(pointer))
        length = struct.unpack("iL", fcntl.ioctl(any_socket, SIOCGIFCONF, asked))[0]
    for start in range(0, length, ENTRY_BYTES):
        entry = room[start : start + ENTRY_BYTES]
        name = entry[:NAME_BYTES].split(b"\0", 1)[0].decode()
        yield name.partition(":")[0], ipaddress.IPv4Address(bytes(entry[ADDRESS]))


def _ipv6() -> Iterator[tuple[str, ipaddress.IPv6Address]]:
    """Each line of the file contains an address of 32 hexadecimal digits, four numbers and a name."""
    try:
        lines = Path("/proc/net/if_inet6").read_text(encoding="ascii").splitlines()
    except OSError:
        lines = []
    for digits, *_, name in map(str.split, lines):
        yield name, ipaddress.IPv6Address(bytes.fromhex(digits))


def _says(file: Path, word: str) -> bool:
    try:
        return file.read_text(encoding="ascii").strip() == word
    except OSError:
        return False
