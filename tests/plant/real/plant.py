"""The size *real*: a whole cluster with nodes that run containers, joined by a network, with DNS."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields
from pathlib import Path

from tests.plant import build
from tests.plant.api import start_api
from tests.plant.control import POD_GROUP_API, start_control
from tests.plant.directory import plant_directory
from tests.plant.images import OPERATOR, PYTHON, TRAINER, check_images, read_image
from tests.plant.machines import Machines
from tests.plant.processes import Programs

from .dns import start_dns
from .loading import load
from .network import Network, start_network
from .node import Node

NODES = build.CACHE / "nodes"
"""The folder of the nodes. It is on the same disk as the images, because nodes share their layers as hard links."""


@dataclass
class RealPlant(Machines):
    """A cluster with real nodes, by their names."""

    nodes: dict[str, Node]
    network: Network

    def load(self, *names: str) -> None:
        """Puts images from the store onto all running nodes."""
        images = [read_image(name) for name in names]

        def onto(node: Node) -> None:
            for image in images:
                load(node.socket, node.lib, image)

        with ThreadPoolExecutor() as pool:
            list(pool.map(onto, [node for node in self.nodes.values() if node.is_running]))


@contextmanager
def start_real(
    *flags: str,
    nodes: int = 2,
    images: tuple[str, ...] = (),
    node_grace_seconds: int = 8,
    pod_groups: bool = False,
) -> Iterator[RealPlant]:
    """Starts a cluster with nodes node-1, node-2, …, waits until it is ready, and stops it when the block ends.

    flags               more flags of kube-apiserver
    images              images that are on the nodes from the start, besides a small one with Python
    node_grace_seconds  after how long a silent node counts as lost
    pod_groups          whether the scheduler places groups of pods, and the API server supports them

    Raises:
        PlantError: Something is missing or did not start. The message contains the relevant end of a log.
    """
    if {OPERATOR, TRAINER} & {*images}:
        check_images()
    with ExitStack() as stack:
        directory = stack.enter_context(plant_directory(NODES))
        network = stack.enter_context(start_network(Programs(directory / "logs"), nodes))
        reached_by_address = "--kubelet-preferred-address-types=InternalIP"
        groups = POD_GROUP_API if pod_groups else ()
        api = start_api(reached_by_address, *groups, *flags, address=str(network.host), service_accounts=True)
        started = stack.enter_context(api)
        known = {one.name: getattr(started, one.name) for one in fields(started)}
        below = {"nodes": {}, "address": str(network.host), "shared": started.directory, "begun": 0}
        plant = RealPlant(**known, **below, network=network)
        stack.callback(plant.api.close)
        start_dns(plant, str(network.host))
        stack.callback(_kill_nodes, plant)
        _start_nodes(plant, directory, nodes, images)
        start_control(plant, node_grace_seconds=node_grace_seconds, pod_groups=pod_groups)
        plant.wait("the nodes", lambda: plant.ready_nodes() == plant.nodes.keys())
        yield plant


def _start_nodes(plant: RealPlant, directory: Path, count: int, images: tuple[str, ...]) -> None:
    for number in range(1, count + 1):
        node = Node(plant, plant.network, number, count, PYTHON, directory / f"node-{number}")
        plant.nodes[node.name] = node
        node.boot()
    plant.load(PYTHON, *images)
    for node in plant.nodes.values():
        node.start_program("kubelet")


def _kill_nodes(plant: RealPlant) -> None:
    for node in plant.nodes.values():
        node.kill()
