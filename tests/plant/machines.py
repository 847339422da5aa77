"""Clusters whose machines tests can reach and break: the plant's real nodes, and kind's containers."""

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from .api import Plant


class Machine(Protocol):
    """The machine that a node runs on."""

    @property
    def name(self) -> str:
        """The node's name in the API."""

    @property
    def registries(self) -> Path:
        """A directory that containerd reads.

        It has a folder for each registry whose address is not the host in its name.
        """

    def kill(self) -> None:
        """Imitates node loss: everything on the machine ends without notice, and its network is gone."""

    def start(self) -> None:
        """Starts the machine again after it was killed, as after a power cut. Does nothing if it is running."""

    def kill_program(self, name: str) -> None:
        """Kills only the kubelet, or only containerd, which is not restarted. Containers keep running."""

    def start_program(self, name: str) -> None:
        """Starts the kubelet, or containerd, again."""

    def tag(self, image: str, name: str) -> None:
        """Gives a second name to one of the machine's images."""


@dataclass
class Machines(Plant):
    """A cluster whose machines tests can reach as well. Its processes run on this machine, and it has an audit log.

    nodes    the machines whose nodes take pods, by name
    address  this machine's address, as nodes and pods see it
    shared   a folder that all nodes have at the same path; its content is removed at exit
    begun    the position in the audit log at which these tests begin
    """

    nodes: Mapping[str, Machine]
    address: str
    shared: Path
    begun: int

    def new_folder(self) -> Path:
        """Creates a folder that pods of all nodes may mount by its path, and write to."""
        folder = Path(tempfile.mkdtemp(dir=self.shared))
        folder.chmod(0o777)
        return folder

    def ready_nodes(self) -> set[str]:
        """The names of the nodes that are ready, according to the API."""
        return {node["metadata"]["name"] for node in self.get("/api/v1/nodes")["items"] if _ready(node)}


def _ready(node: dict[str, dict[str, list[dict[str, str]]]]) -> bool:
    conditions = node["status"].get("conditions", ())
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)
