"""Clusters whose machines are at hand, for tests that break them: the plant's real nodes, and kind's containers."""

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from .api import Plant


class Machine(Protocol):
    """What a node runs on."""

    @property
    def name(self) -> str:
        """The node's, in the API."""

    @property
    def registries(self) -> Path:
        """Holds a folder for each registry that is not where its name says, as containerd reads them."""

    def kill(self) -> None:
        """Node loss: all that runs there is gone at once, without a goodbye, and its network with it."""

    def start(self) -> None:
        """Starts it again after it was killed, as after a power cut; nothing if it runs."""

    def kill_program(self, name: str) -> None:
        """Kills the kubelet, or containerd, alone: containers go on. It stays away."""

    def start_program(self, name: str) -> None:
        """Starts one of these again."""

    def tag(self, image: str, name: str) -> None:
        """Has one of its images be there under another name too."""


@dataclass
class Machines(Plant):
    """A cluster that is reached from below too. Its processes are among this machine's, and it has an audit log.

    nodes    the machines whose nodes take pods, by name
    address  this machine, as nodes and pods see it
    shared   a folder that all nodes have at the same path; what is in it is gone at exit
    begun    where in the audit log these tests begin
    """

    nodes: Mapping[str, Machine]
    address: str
    shared: Path
    begun: int

    def new_folder(self) -> Path:
        """A folder that pods of all nodes may mount by its path, and fill."""
        folder = Path(tempfile.mkdtemp(dir=self.shared))
        folder.chmod(0o777)
        return folder

    def ready_nodes(self) -> set[str]:
        """Names of the nodes that are ready, as the API says."""
        return {node["metadata"]["name"] for node in self.get("/api/v1/nodes")["items"] if _ready(node)}


def _ready(node: dict[str, dict[str, list[dict[str, str]]]]) -> bool:
    conditions = node["status"].get("conditions", ())
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)
