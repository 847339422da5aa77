"""A node: namespaces with containerd, kubelet and kube-proxy inside, which live as long as their first process."""

import json
import os
import shutil
import signal
import sys
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from tests.plant import build, cgroups
from tests.plant.api import ADMINS, Plant
from tests.plant.processes import Program

from . import files, loading
from .network import Network, ip

SCRIPT = Path(__file__).parent / "node.sh"
POLICIES = Path(__file__).parent / "policies.py"
STARTED_BY = {"kubelet": signal.SIGUSR1, "containerd": signal.SIGUSR2}
"""What the node's first process, of SCRIPT, is told by."""
BINARIES = ("containerd", "containerd-shim-runc-v2", "runc", "kubelet", "kube-proxy")


@dataclass
class Node:
    """One node of a plant.

    number     its number, from 1 on
    directory  what it keeps while it is down: /var/lib and /var/log are in there
    """

    plant: Plant = field(repr=False)
    network: Network
    number: int
    nodes: int
    sandbox_image: str
    directory: Path
    program: Program | None = None

    @property
    def name(self) -> str:
        """As it is in the API."""
        return f"node-{self.number}"

    @property
    def is_running(self) -> bool:
        """Whether it is not killed."""
        return self.program is not None

    @property
    def lib(self) -> Path:
        """What is /var/lib on the node."""
        return self.directory / "lib"

    @property
    def socket(self) -> Path:
        """Where its containerd listens, as seen from outside."""
        return Path(f"/proc/{self._first().pid}/root/run/containerd/containerd.sock")

    @property
    def registries(self) -> Path:
        """Holds a folder for each registry that is not where its name says, as containerd reads them."""
        return self.lib / files.REGISTRIES

    def start(self) -> None:
        """Starts it again after it was killed, as after a power cut; nothing if it runs."""
        if not self.is_running:
            self.boot()
            self.start_program("kubelet")

    def boot(self) -> None:
        """Starts all of it but its kubelet, which may be started once the images are there."""
        self._write_files()
        folders = cgroups.make(self._cgroup)
        environment = {
            "NODE": self.name,
            "DIRECTORY": self.directory,
            "LOGS": self.plant.directory / "logs",
            "CGROUPS": " ".join(map(str, folders)),
            "HIERARCHIES": " ".join(cgroups.hierarchies()),
            "SWITCH": self.network.switch_namespace,
            "ADDRESS": self.network.node(self.number),
            "SERVER": self.plant.url,
            "PYTHON": sys.executable,
            "POLICIES": POLICIES,
            "PREFIX": self.network.PREFIX,
            "ROUTES": self._routes(),
            "PATH": ":".join([*(str(build.path(name).parent) for name in BINARIES), os.environ["PATH"]]),
        }
        variables = [f"{name}={value}" for name, value in environment.items()]
        self.program = self.plant.programs.start(self.name, "env", *variables, "bash", SCRIPT)
        self.plant.wait(f"containerd on {self.name}", self._containerd_listens)

    def start_program(self, name: str) -> None:
        """Starts the kubelet, for the first time or after it was killed, or containerd again."""
        self._first().send_signal(STARTED_BY[name])
        self.plant.wait(f"{name} on {self.name}", lambda: self._running(name))

    def kill_program(self, name: str) -> None:
        """Kills the kubelet, or containerd, alone: containers go on. It stays away."""
        for process in self._running(name):
            process.kill()

    def tag(self, image: str, name: str) -> None:
        """Has one of its images be there under another name too."""
        loading.tag(self.socket, image, name)

    def _running(self, name: str) -> list[psutil.Process]:
        return [process for process in self._first().children(recursive=True) if process.name() == name]

    def kill(self) -> None:
        """Node loss: all that runs there is gone at once, without a goodbye, and its network with it."""
        if self.program:
            self.plant.programs.running.pop(self.name, None)
            self.program.kill()
            self.program = None
        cgroups.remove(self._cgroup)

    def unplug(self) -> None:
        """Pulls its cable: all goes on, but it reaches nobody and nobody reaches it."""
        ip(f"link set {self.name} down", self.network.switch_namespace)

    def plug_in(self) -> None:
        """Puts its cable back."""
        ip(f"link set {self.name} up", self.network.switch_namespace)

    def pids(self) -> list[int]:
        """The processes of the node itself, as this machine numbers them; those in containers are not among them."""
        namespace = _pid_namespace(self._first().pid)
        return [pid for pid in psutil.pids() if _pid_namespace(pid) == namespace]

    @property
    def _cgroup(self) -> str:
        return f"{self.directory.parent.name}-{self.name}"

    def _routes(self) -> str:
        others = self.network.routes(range(1, self.nodes + 1), except_for=self.number)
        return f"route add default via {self.network.host}\n{others}"

    def _first(self) -> psutil.Process:
        """The first process inside, the child of the one that made the namespaces."""
        if not self.program:
            raise RuntimeError(f"{self.name} is not running")
        return psutil.Process(self.program.process.pid).children()[0]

    def _containerd_listens(self) -> bool:
        try:
            return self.socket.exists()
        except IndexError:
            return False

    def _write_files(self) -> None:
        lib, plant = self.lib, self.plant
        (lib / "cni").mkdir(parents=True, exist_ok=True)
        (self.directory / "log").mkdir(exist_ok=True)
        shutil.copy(plant.directory / "pki" / "ca.crt", lib)
        shutil.copy(plant.kubeconfig_for(f"system:node:{self.name}", "system:nodes"), lib / "kubelet.kubeconfig")
        shutil.copy(plant.kubeconfig_for("system:kube-proxy"), lib / "kube-proxy.kubeconfig")
        agent = plant.authority.client("network-policies", (ADMINS,))
        (lib / "policies.pem").write_text(f"{agent.certificate}{agent.key}")
        (lib / "resolv.conf").write_text("")
        (lib / "containerd.toml").write_text(files.containerd(self.sandbox_image))
        for name, content in {
            "kubelet.json": files.kubelet(self.network, self.number),
            "kube-proxy.json": files.kube_proxy(self.network),
            "cni/plant.conflist": files.cni(self.network, self.number),
        }.items():
            (lib / name).write_text(json.dumps(content))


def _pid_namespace(pid: int) -> Path | None:
    try:
        return Path(f"/proc/{pid}/ns/pid").readlink()
    except OSError:
        return None
