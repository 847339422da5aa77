"""Runs the pods of jobs on the plant's simulated nodes as processes of this machine, as kubelets would.

Pods that are to be run carry the annotations WAITING: the plant then starts and ends them when it is told to. A pod
gets a loopback address by its node's number in the job, so each job needs ports of its own (`spec.network`).
"""

import base64
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from ddpjob_operator.api.contract import MANAGER, SECRET_KEY, Env, Label
from ddpjob_operator.engine import SECRET_VOLUME, by_name
from ddpjob_operator.local import RunDirectory
from ddpjob_operator.local.process_spec import TERMINATION_LOG, Machine, Ports, address_of, translate

from tests.plant import Plant
from tests.plant.fake import ALIVE, NODES

from .jobs import steered

WAITING = steered(runs_for="24h", waits_for="ContainerCreating")
PODS = f"/api/v1/pods?labelSelector={Label.MANAGED_BY}%3D{MANAGER}"
LOOK_SECONDS = 0.3
GRACE_SECONDS = 5.0


@dataclass
class _Container:
    pod: dict[str, Any]
    process: subprocess.Popen[bytes]
    message: Path
    target: str
    reported: bool = False

    @property
    def node(self) -> str:
        return str(self.pod["spec"]["nodeName"])

    def kill(self) -> None:
        """Kills the container's processes."""
        with suppress(psutil.NoSuchProcess):
            root = psutil.Process(self.process.pid)
            for process in [root, *root.children(recursive=True)]:
                with suppress(psutil.NoSuchProcess):
                    process.kill()
        self.process.wait()


@dataclass
class Kubelets:
    """The kubelets of all simulated nodes.

    directory  where the processes' files and logs are
    """

    plant: Plant
    directory: Path
    _containers: dict[str, _Container] = field(default_factory=dict)
    _lost: set[str] = field(default_factory=set)
    _over: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    failure: Exception | None = None

    def lose(self, node: str) -> None:
        """A node is gone: its processes end at once, and nobody reports that they did."""
        with self._lock:
            self._lost.add(node)
            self.plant.api.patch(f"{NODES}/{node}", {"metadata": {"labels": {ALIVE: None}}})
            for container in self._containers.values():
                if container.node == node:
                    container.kill()

    def targets(self) -> dict[str, dict[str, str]]:
        """The supervisors that run, as Prometheus finds them by the chart's PodMonitor."""
        with self._lock:
            return {
                one.target: {
                    "namespace": one.pod["metadata"]["namespace"],
                    "pod": one.pod["metadata"]["name"],
                    "job_name": one.pod["metadata"]["labels"][Label.JOB_NAME],
                }
                for one in self._containers.values()
                if one.process.poll() is None
            }

    def run(self) -> None:
        """Looks after the pods until the end."""
        try:
            while not self._over.wait(LOOK_SECONDS):
                with self._lock:
                    self._look()
        except Exception as failure:  # noqa: BLE001  The test raises it.
            self.failure = failure

    def stop(self) -> None:
        """Kills everything."""
        self._over.set()
        for container in self._containers.values():
            container.kill()

    def _look(self) -> None:
        pods = {pod["metadata"]["uid"]: pod for pod in self.plant.get(PODS)["items"]}
        for uid, container in self._containers.items():
            if container.node not in self._lost and not container.reported:
                self._compare(container, pods.get(uid))
        for uid, pod in pods.items():
            node = pod["spec"].get("nodeName")
            if uid not in self._containers and node and node not in self._lost and _waits(pod):
                self._containers[uid] = self._start(pod)

    def _compare(self, container: _Container, pod: dict[str, Any] | None) -> None:
        if pod is None or "deletionTimestamp" in pod["metadata"]:
            container.process.terminate()
            with suppress(subprocess.TimeoutExpired):
                container.process.wait(GRACE_SECONDS)
            container.kill()
            container.reported = True
        elif (code := container.process.poll()) is not None:
            container.reported = True
            message = container.message.read_text() if container.message.exists() else ""
            ended = steered(runs_for="0s", exit_code=str(code if code >= 0 else 128 - code), message=message)
            self.plant.api.patch(_path(pod), {"metadata": {"annotations": ended}})

    def _start(self, pod: dict[str, Any]) -> _Container:
        metadata = pod["metadata"]
        run = RunDirectory(self.directory / metadata["labels"][Label.JOB_UID])
        run.create()
        self._mount_secret(pod, run)
        own = run.pods / metadata["name"]
        trainer = next(one for one in pod["spec"]["containers"] if one["name"] == "trainer")
        env = {one["name"]: one.get("value") for one in by_name(trainer["env"])}
        ports = Ports(*(int(env[name]) for name in (Env.MASTER_PORT, Env.STATUS_PORT, Env.CONTROL_PORT)))
        spec = translate(pod, run, own, Machine(self.directory, ports, threads=1))
        for needed in (own, *spec.needed):
            needed.mkdir(parents=True, exist_ok=True)
        with (run.logs / f"{metadata['name']}.log").open("ab") as log:
            process = subprocess.Popen(
                spec.argv,
                env=spec.env | {"NODE_NAME": pod["spec"]["nodeName"]},
                cwd=spec.directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        started = steered(address=address_of(pod), waits_for=None)
        self.plant.api.patch(_path(pod), {"metadata": {"annotations": started}})
        return _Container(pod, process, own / TERMINATION_LOG, f"{address_of(pod)}:{ports.status}")

    def _mount_secret(self, pod: dict[str, Any], run: RunDirectory) -> None:
        name = next(one["secret"]["secretName"] for one in pod["spec"]["volumes"] if one["name"] == SECRET_VOLUME)
        secret = self.plant.get(f"/api/v1/namespaces/{pod['metadata']['namespace']}/secrets/{name}")
        run.secrets.mkdir(mode=0o700, exist_ok=True)
        file = run.secrets / SECRET_KEY
        file.touch(mode=0o600)
        file.write_bytes(base64.b64decode(secret["data"][SECRET_KEY]))


def _waits(pod: dict[str, Any]) -> bool:
    return (
        "deletionTimestamp" not in pod["metadata"]
        and pod["status"].get("phase") == "Pending"
        and WAITING.items() <= pod["metadata"].get("annotations", {}).items()
    )


def _path(pod: dict[str, Any]) -> str:
    return f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"


@contextmanager
def kubelets(plant: Plant, directory: Path) -> Iterator[Kubelets]:
    """Kubelets that run pods until the block ends."""
    found = Kubelets(plant, directory)
    looking = threading.Thread(target=found.run, daemon=True)
    looking.start()
    try:
        yield found
    finally:
        found.stop()
        looking.join()
