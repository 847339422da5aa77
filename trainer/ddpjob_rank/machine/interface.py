"""Chooses gloo's network interface: the interface through which the other machines reach this machine.

By default gloo uses the address to which this machine's host name resolves. In a pod this is the right address; on
Debian, for example, it is 127.0.1.1, which no other machine can reach.
"""

import os
import socket
from collections.abc import Iterable

from ddpjob_rank.world import World

from .network import address_towards, interface_of, is_loopback

VARIABLE = "GLOO_SOCKET_IFNAME"


CHOSEN = f"gloo uses {{}}, which leads to the other machines; to use another interface, set {VARIABLE}"


def local_address(world: World) -> str:
    """This machine's address on the route to the master; empty if there is no route, or the user has set VARIABLE."""
    if VARIABLE in os.environ or not world.master_addr:
        return ""
    return address_towards(world.master_addr, world.master_port) or ""


def choose_interface(own: str, others: Iterable[str]) -> str:
    """Makes gloo use the interface of `interface_towards`, and returns its name."""
    name = interface_towards(own, others)
    if name:
        os.environ[VARIABLE] = name
    return name


def interface_towards(own: str, others: Iterable[str]) -> str:
    """The interface with the address `own`; empty if gloo should choose.

    On the master's machine, the route to the master may use the loopback interface. In this case the interface is the
    one on the route to the first address in `others` that belongs to another machine, if there is such an address.
    """
    if own and is_loopback(own):
        elsewhere = next((other for other in others if other and not is_loopback(other)), None)
        own = address_towards(elsewhere, 1) or "" if elsewhere else ""
    return (interface_of(own) if own and not is_loopback(own) else None) or ""


def name_leads_out() -> bool:
    """Whether gloo finds the right interface by itself.

    It takes the first address of this machine's host name that is an address of this machine, otherwise loopback. In
    a pod on its Kubernetes node's network the host name is that of the node, which often resolves to neither.
    """
    try:
        found = socket.getaddrinfo(socket.gethostname(), None, type=socket.SOCK_STREAM)
    except OSError:
        return False
    # An IPv6 address may carry the name of its interface.
    addresses = (str(address[0]).partition("%")[0] for *_, address in found)
    # All of 127.0.0.0/8 is on the loopback interface, but the kernel lists only 127.0.0.1.
    usable = (address for address in addresses if is_loopback(address) or interface_of(address))
    return next((not is_loopback(address) for address in usable), False)
