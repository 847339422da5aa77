"""The network interface that gloo should use: the one through which the other machines reach this one.

Left to itself gloo takes the address of this machine's own name. In a pod that is the right one; on Debian, for
example, it is 127.0.1.1, where no other machine finds it.
"""

import os
from collections.abc import Iterable

from ddpjob_rank.world import World

from .network import address_towards, interface_of, is_loopback

VARIABLE = "GLOO_SOCKET_IFNAME"


def local_address(world: World) -> str:
    """This machine's address on the way to the master; empty if there is none or nothing should be chosen."""
    if VARIABLE in os.environ or not world.master_addr:
        return ""
    return address_towards(world.master_addr, world.master_port) or ""


def choose_interface(own: str, others: Iterable[str]) -> str:
    """Makes gloo use the interface of this machine's own address, and returns its name; empty: gloo chooses.

    On the master's machine the way to the master does not lead out. There it is the way to the first process on
    another machine, if there is one.
    """
    if own and is_loopback(own):
        elsewhere = next((other for other in others if other and not is_loopback(other)), None)
        own = address_towards(elsewhere, 1) or "" if elsewhere else ""
    name = interface_of(own) if own and not is_loopback(own) else None
    if name is None:
        return ""
    os.environ[VARIABLE] = name
    return name
