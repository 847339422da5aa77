"""The network of the nodes: a virtual switch in its own namespace, with one virtual cable to this machine.

This machine's own network keeps its rules and settings. It gets one device, with the address at which the nodes reach
the API server and the cluster's DNS, and the routes to the pods. When the switch's process ends, the device and the
routes disappear, too.
"""

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import ClassVar

from tests.plant.errors import PlantError
from tests.plant.processes import Programs

DEVICE = "ddpjob"
FIRST_NETWORK = 200
"""The first plant's addresses are 10.200.0.0/16, the next plant's 10.201.0.0/16."""
MOST_PLANTS = 16
POLL_SECONDS = 0.01
SWITCH = "ip link add switch type bridge && ip link set switch up && echo up && exec sleep infinity"


@dataclass(frozen=True)
class Network:
    """The addresses of one plant.

    Node n, counted from 1, has its pods in the n-th /24 and its own address in the 0th.

    device            this machine's end of the cable, in /sys
    switch_namespace  the network namespace of the switch
    """

    addresses: IPv4Network
    device: Path
    switch_namespace: Path

    PREFIX: ClassVar = 24

    @property
    def host(self) -> IPv4Address:
        """The address of this machine, as the nodes and pods see it."""
        return self.addresses[1]

    def node(self, number: int) -> IPv4Address:
        """The address of a node."""
        return self.addresses[10 + number]

    def pods(self, number: int) -> IPv4Network:
        """The addresses of a node's pods."""
        return list(self.addresses.subnets(new_prefix=self.PREFIX))[number]

    def routes(self, numbers: range, except_for: int = 0) -> str:
        """Commands for `ip` that add the routes to the pods of these nodes, except for the node `except_for`."""
        ways = [f"route add {self.pods(to)} via {self.node(to)}" for to in numbers if to != except_for]
        return "\n".join(ways)


@contextmanager
def start_network(programs: Programs, nodes: int) -> Iterator[Network]:
    """Creates the switch and this machine's cable to it, with routes to `nodes` nodes; removes them at the end.

    Raises:
        PlantError: No device can be created, because there are too many plants or the rights are missing.
    """
    program = programs.start("switch", "unshare", "--net", "sh", "-c", SWITCH)
    try:
        while "up" not in program.log.read_text():
            program.check()
            time.sleep(POLL_SECONDS)
        network = _plug_in(Path(f"/proc/{program.process.pid}/ns/net"))
        ip(network.routes(range(1, nodes + 1)))
        yield network
    finally:
        program.kill()


def ip(commands: str, namespace: Path = Path("/proc/self/ns/net")) -> None:
    """Runs commands of ip, one per line, in a network namespace.

    Raises:
        PlantError: A command failed. The message is the output of `ip`.
    """
    command = ["nsenter", f"--net={namespace}", "ip", "-batch", "-"]
    done = subprocess.run(command, input=commands, capture_output=True, text=True, check=False)
    if done.returncode:
        raise PlantError(f"ip failed: {done.stderr.strip()}\n{commands}")


def _plug_in(namespace: Path) -> Network:
    """Takes the first free device name, which stands for a range of addresses. The kernel gives a name only once."""
    for number in range(MOST_PLANTS):
        device = f"{DEVICE}{number}"
        try:
            ip(f"link add {device} type veth peer name host netns {namespace}")
        except PlantError as error:
            if "File exists" not in str(error):
                raise
            continue
        addresses = IPv4Network(f"10.{FIRST_NETWORK + number}.0.0/16")
        network = Network(addresses, Path("/sys/class/net") / device, namespace)
        ip("link set host master switch up", namespace)
        ip(f"address add {network.host}/{Network.PREFIX} dev {device}\nlink set {device} up")
        return network
    raise PlantError(f"there are {MOST_PLANTS} real plants on this machine already: ip link show type veth")
