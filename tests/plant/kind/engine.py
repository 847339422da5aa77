"""A docker engine in its own namespaces. It ends with the process that started it, and does not change the host."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import psutil

from tests.plant import build, cgroups
from tests.plant.errors import PlantError
from tests.plant.images import read_image
from tests.plant.processes import Program, Programs
from tests.plant.real.loading import load
from tests.support.waiting import wait_for

from .debian import DOCKER

HERE = Path(__file__).parent
PROGRAMS = ("containerd", "containerd-shim-runc-v2", "kind", "kubectl", "helm")
UP_SECONDS = 60.0


@dataclass(frozen=True)
class Engine:
    """A running docker engine that is isolated from the machine.

    directory  all of its files, including docker's own folder
    program    the process with which the whole engine ends
    """

    directory: Path
    program: Program

    @property
    def environment(self) -> dict[str, str]:
        """The environment in which docker and kind find this engine, and a shell finds docker and kind."""
        return {"DOCKER_HOST": f"unix://{self.directory}/docker.sock", "PATH": _path()}

    @property
    def network(self) -> tuple[str, ...]:
        """The words to put before a command so that it can reach the engine's containers."""
        return ("nsenter", "--target", self._first, "--net", "--")

    @property
    def inside(self) -> tuple[str, ...]:
        """The words to put before a command so that it sees the same processes and mounts as the engine."""
        return ("nsenter", "--target", self._first, "--pid", "--mount", "--")

    @property
    def _first(self) -> str:
        """The first process in the namespaces, which is the child of the process that created them."""
        return str(psutil.Process(self.program.process.pid).children()[0].pid)


def docker(*words: str, environment: Mapping[str, str] | None = None, stdin: IO[bytes] | None = None) -> str:
    """Returns what docker prints.

    Raises:
        PlantError: docker failed. The message is its output.
    """
    command = [str(DOCKER / "usr/bin/docker"), *words]
    own = os.environ | (environment or {})
    done = subprocess.run(command, env=own, stdin=stdin, capture_output=True, text=True, check=False)
    if done.returncode:
        raise PlantError(f"docker {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout


def load_images(nodes: Sequence[str], names: Sequence[str]) -> None:
    """Puts images from the plant's store onto nodes. Their layers are hard links.

    Must be called in the engine's namespaces, with DOCKER_HOST set to the engine.
    """
    images = [read_image(name) for name in names]
    for node in nodes:
        (about,) = json.loads(docker("inspect", node))
        socket = Path(f"/proc/{about['State']['Pid']}/root/run/containerd/containerd.sock")
        (var,) = (mount["Source"] for mount in about["Mounts"] if mount["Destination"] == "/var")
        for image in images:
            load(socket, Path(var, "lib"), image)


@contextmanager
def start_engine(directory: Path) -> Iterator[Engine]:
    """Starts an engine with the content that the directory's docker/ already has, and ends it when the block ends.

    Raises:
        PlantError: The engine did not start. The message contains the end of its log.
    """
    programs = Programs(directory / "logs")
    programs.logs.mkdir(parents=True, exist_ok=True)
    _write_files(directory)
    name = f"{directory.name}-kind"
    environment = {
        "NAME": "kind",
        "DIRECTORY": directory,
        "LOGS": programs.logs,
        "CGROUPS": " ".join(map(str, cgroups.make(name))),
        "HIERARCHIES": " ".join(cgroups.hierarchies()),
        "PATH": f"{directory}:{_path()}",
    }
    variables = [f"{key}={value}" for key, value in environment.items()]
    engine = Engine(directory, programs.start("engine", "env", *variables, "bash", HERE / "engine.sh"))
    try:
        wait_for("docker", lambda: _answers(engine), UP_SECONDS, story=engine.program.last_words)
        yield engine
    finally:
        programs.kill()
        cgroups.remove(name)


def _answers(engine: Engine) -> bool:
    engine.program.check()
    try:
        docker("version", environment=engine.environment)
    except PlantError:
        return False
    return True


def _path() -> str:
    own = [DOCKER / "usr/bin", DOCKER / "usr/sbin", *(build.path(name).parent for name in PROGRAMS)]
    return ":".join([*map(str, own), os.environ["PATH"]])


def _write_files(directory: Path) -> None:
    runtime = directory / "runc"
    runtime.write_text(f'#!/bin/sh\nexec {sys.executable} {HERE / "runtime.py"} {build.path("runc")} "$@"\n')
    runtime.chmod(0o755)
    (directory / "containerd.toml").write_text(_containerd(directory))
    (directory / "docker.json").write_text(json.dumps(_docker(directory)))


def _containerd(directory: Path) -> str:
    return f"""\
version = 3
root = "{directory}/containerd"
state = "/run/containerd"
disabled_plugins = ["io.containerd.grpc.v1.cri", "io.containerd.cri.v1.images", "io.containerd.cri.v1.runtime"]

[grpc]
  address = "/run/containerd/containerd.sock"
"""


def _docker(directory: Path) -> Mapping[str, object]:
    return {
        "hosts": [f"unix://{directory}/docker.sock"],
        "data-root": str(directory / "docker"),
        "exec-root": "/run/docker",
        "pidfile": "/run/docker.pid",
        "containerd": "/run/containerd/containerd.sock",
        "storage-driver": "overlay2",
        "exec-opts": ["native.cgroupdriver=cgroupfs"],
    }
