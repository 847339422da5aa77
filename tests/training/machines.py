"""Machines, as far as the network goes: network namespaces on one bridge."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from tests.plant.needs import leave_out
from tests.plant.real.machine import can_install, install_missing, missing

IP = {"ip": "iproute2"}


@contextmanager
def on_one_bridge(count: int) -> Iterator[list[str]]:
    """So many, by name. Machine n has the address 10.77.0.1n, which none of them finds by its own name."""
    if sys.platform != "linux" or os.geteuid() or (missing(IP) and not can_install()):
        leave_out("left out: network namespaces need Linux, root and ip (of iproute2)")
    install_missing(IP)
    bridge = f"pf{os.getpid()}"
    names = [f"{bridge}-{number}" for number in range(count)]
    with ExitStack() as cleanup:
        ip("link", "add", bridge, "type", "bridge")
        cleanup.callback(ip, "link", "del", bridge)
        ip("link", "set", bridge, "up")
        for number, name in enumerate(names):
            ip("netns", "add", name)
            cleanup.callback(ip, "netns", "del", name)
            ip("link", "add", f"{bridge}v{number}", "type", "veth", "peer", "name", "eth0", "netns", name)
            ip("link", "set", f"{bridge}v{number}", "master", bridge, "up")
            ip("-n", name, "addr", "add", f"10.77.0.1{number}/24", "dev", "eth0")
            ip("-n", name, "link", "set", "lo", "up")
            ip("-n", name, "link", "set", "eth0", "up")
        yield names


def ip(*words: str) -> None:
    """A command of iproute2."""
    subprocess.run(["ip", *words], check=True)
