"""A node: namespaces with containerd, kubelet and kube-proxy inside. They live as long as their first process."""

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
"""The signals that make the node's first process, which runs SCRIPT, start a program."""
BINARIES = ("containerd", "containerd-shim-runc-v2", "runc", "kubelet", "kube-proxy")


@dataclass
class Node:
    """One node of a plant.

    number     its number, counted from 1
    directory  the files that it keeps while it is down, including /var/lib and /var/log
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
        """The node's name in the API."""
        return f"node-{self.number}"

    @property
    def is_running(self) -> bool:
        """Whether the node runs: it has been started, and not killed since then."""
        return self.program is not None

    @property
    def lib(self) -> Path:
        """The folder that is /var/lib on the node."""
        return self.directory / "lib"

    @property
    def socket(self) -> Path:
        """The socket on which the node's containerd listens, as a path outside the node."""
        return Path(f"/proc/{self._first().pid}/root/run/containerd/containerd.sock")

    @property
    def registries(self) -> Path:
        """A directory that containerd reads.

        It has a folder for each registry whose address is not the host in its name.
        """
        return self.lib / files.REGISTRIES

    def start(self) -> None:
        """Starts the node again after it was killed, as after a power cut. Does nothing if it is running."""
        if not self.is_running:
            self.boot()
            self.start_program("kubelet")

    def boot(self) -> None:
        """Starts everything but the kubelet, which may be started as soon as the images are on the node."""
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
        """Starts the kubelet, for the first time or after it was killed; or starts containerd again."""
        self._first().send_signal(STARTED_BY[name])
        self.plant.wait(f"{name} on {self.name}", lambda: self._running(name))

    def kill_program(self, name: str) -> None:
        """Kills only the kubelet, or only containerd, which is not restarted. Containers keep running."""
        for process in self._running(name):
            process.kill()

    def tag(self, image: str, name: str) -> None:
        """Gives a second name to one of the node's images."""
        loading.tag(self.socket, image, name)

    def _running(self, name: str) -> list[psutil.Process]:
        return [process for process in self._first().children(recursive=True) if process.name() == name]

    def kill(self) -> None:
        """Imitates node loss: everything on the node ends immediately and without notice, and its network is gone."""
        if self.program:
            self.plant.programs.running.pop(self.name, None)
            self.program.kill()
            self.program = None
        cgroups.remove(self._cgroup)

    def unplug(self) -> None:
        """Unplugs the node's cable: everything on the node keeps running, but no packets go in or out."""
        ip(f"link set {self.name} down", self.network.switch_namespace)

    def plug_in(self) -> None:
        """Puts the node's cable back."""
        ip(f"link set {self.name} up", self.network.switch_namespace)

    def pids(self) -> list[int]:
        """The IDs on this machine of the node's own processes, without the processes in containers."""
        namespace = _pid_namespace(self._first().pid)
        return [pid for pid in psutil.pids() if _pid_namespace(pid) == namespace]

    @property
    def _cgroup(self) -> str:
        return f"{self.directory.parent.name}-{self.name}"

    def _routes(self) -> str:
        others = self.network.routes(range(1, self.nodes + 1), except_for=self.number)
        return f"route add default via {self.network.host}\n{others}"

    def _first(self) -> psutil.Process:
        """The first process in the namespaces, which is the child of the process that created them."""
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
