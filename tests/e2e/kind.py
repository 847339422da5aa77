"""A kind cluster whose docker engine is on this machine: its nodes are containers, and break like machines."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psutil

from tests.plant.errors import PlantError
from tests.plant.machines import Machines

from .external import External

PROVIDER = "kind://docker/"
CONTROL_PLANE = "node-role.kubernetes.io/control-plane"
FOLDER = Path("/tmp/ddpjob-kind")
"""On this machine and, as kind.yaml says, on all workers."""

AUDIT_LOG = "var/log/kubernetes/audit.log"


@dataclass(frozen=True)
class Container:
    """A node of kind."""

    name: str

    @property
    def registries(self) -> Path:
        """Holds a folder for each registry that is not where its name says, as containerd reads them."""
        return self.root / "etc/containerd/certs.d"

    def kill(self) -> None:
        """Node loss: all that runs there is gone at once, without a goodbye, and its network with it."""
        docker("kill", self.name)

    def start(self) -> None:
        """Starts it again after it was killed, as after a power cut; nothing if it runs."""
        docker("start", self.name)

    def kill_program(self, name: str) -> None:
        """Kills the kubelet, or containerd, alone: containers go on. It stays away."""
        self._run("systemctl", "kill", "--kill-who=main", "--signal=KILL", name)
        # systemd would start it again a second later.
        self._run("systemctl", "stop", name)

    def start_program(self, name: str) -> None:
        """Starts one of these again."""
        self._run("systemctl", "start", name)

    def tag(self, image: str, name: str) -> None:
        """Has one of its images be there under another name too."""
        self._run("ctr", "--namespace=k8s.io", "images", "tag", "--force", image, name)

    @property
    def root(self) -> Path:
        """Its files, as this machine finds them.

        Raises:
            PlantError: its processes are not among this machine's: docker runs elsewhere.
        """
        # docker may number them otherwise, in a namespace of its own; it names their cgroup by the container's id.
        container = str(self.about["Id"])
        if not (found := [process for process in psutil.process_iter() if container in _cgroup(process)]):
            raise PlantError(f"no process of the container {self.name} is to be seen here")
        first = min(found, key=psutil.Process.create_time)
        return Path(f"/proc/{first.pid}/root")

    @property
    def about(self) -> dict[str, Any]:
        """What docker knows of it."""
        [about] = json.loads(docker("inspect", self.name))
        return dict(about)

    def _run(self, *command: str) -> None:
        docker("exec", self.name, *command)


@dataclass
class Kind(External, Machines):
    """A cluster as kind.yaml describes it."""

    control_plane: Container

    @property
    def audit_log(self) -> Path:
        """One JSON event per line and answered request."""
        return self.control_plane.root / AUDIT_LOG


@contextmanager
def with_machines(cluster: External) -> Iterator[External]:
    """The cluster with its machines, where these are at hand; else as it is."""
    labels = {node["metadata"]["name"]: node["metadata"]["labels"] for node in _nodes_of_kind(cluster)}
    own = [Container(name) for name in labels if CONTROL_PLANE in labels[name]]
    workers = {name: Container(name) for name in labels if CONTROL_PLANE not in labels[name]}
    if not (own and workers and _at_hand(own[0])):
        yield cluster
        return
    below = {
        "nodes": workers,
        "address": own[0].about["NetworkSettings"]["Networks"]["kind"]["Gateway"],
        "begun": (own[0].root / AUDIT_LOG).stat().st_size,
    }
    with TemporaryDirectory(dir=FOLDER, ignore_cleanup_errors=True) as shared:
        kind = Kind(**vars(cluster), **below, shared=Path(shared), control_plane=own[0])
        try:
            yield kind
        finally:
            kind.close()


def _nodes_of_kind(cluster: External) -> list[dict[str, Any]]:
    nodes = json.loads(cluster.kubectl("get", "nodes", "--output=json"))["items"]
    return [node for node in nodes if node["spec"].get("providerID", "").startswith(PROVIDER)]


def _at_hand(control_plane: Container) -> bool:
    """Whether the cluster is as kind.yaml says, and we may look into it."""
    try:
        return FOLDER.is_dir() and (control_plane.root / AUDIT_LOG).exists()
    except (OSError, PlantError):
        return False


def docker(*words: str) -> str:
    """What docker prints.

    Raises:
        PlantError: with what it said.
    """
    done = subprocess.run(["docker", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise PlantError(f"docker {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout


def _cgroup(process: psutil.Process) -> str:
    try:
        return Path(f"/proc/{process.pid}/cgroup").read_text()
    except OSError:
        return ""
