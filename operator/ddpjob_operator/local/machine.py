"""Resources of this machine that the nodes of a job share: GPUs, cores, ports."""

import contextlib
import fcntl
import os
import random
import shutil
import socket
import subprocess
import tempfile
import weakref
from pathlib import Path

import psutil

from ddpjob_operator.api import Backend, BadInputError, DDPJobSpec
from ddpjob_operator.api.words import counted

from .process_spec import LOOPBACK


def visible_gpus() -> list[str]:
    """The GPUs that CUDA programs see: those in CUDA_VISIBLE_DEVICES or, if it is not set, all GPUs of the driver."""
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is not None:
        return [gpu for gpu in chosen.split(",") if gpu.strip() not in {"", "-1"}]
    if shutil.which("nvidia-smi") is None:
        return []
    query = ["nvidia-smi", "--query-gpu=index", "--format=csv,noheader"]
    listed = subprocess.run(query, capture_output=True, text=True, check=False)
    return listed.stdout.split() if listed.returncode == 0 else []


def choose_backend(spec: DDPJobSpec, gpus: list[str]) -> tuple[Backend, str]:
    """The backend to use on this machine, and the reason for the choice. NCCL needs a GPU for each rank."""
    ranks = spec.nodes * spec.resolved_procs_per_node()
    if spec.backend is not Backend.AUTO:
        return spec.backend, "as spec.backend says"
    why = f"{counted(len(gpus), 'GPU')} for {counted(ranks, 'rank')}"
    if len(gpus) >= ranks:
        return Backend.NCCL, why
    return Backend.GLOO, f"on CPU: {why}"


def share_of_gpus(gpus: list[str], node: int, procs_per_node: int) -> str:
    """One node's GPUs, as a value of CUDA_VISIBLE_DEVICES."""
    return ",".join(gpus[node * procs_per_node : (node + 1) * procs_per_node])


def threads_per_process(processes: int) -> int:
    """The number of threads for each training process, if this many processes share the usable cores."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, usable // processes)


MOST_TRIES = 100
"""How many ports are tried. If none of them can be locked, the lock directory is at fault, not the ports."""


class Port:
    """A TCP port that no other `ddpjob run` on this machine chooses while this object exists.

    The port is the wanted one or, if that is taken, another. It is not enough to test that a port can be bound,
    because another job may have chosen the port without listening on it yet. A rank could then connect to the other
    job's master and train with that job. Therefore each port also has a lock file.

    Raises:
        BadInputError: the directory of the lock files does not exist, or no file in it can be locked.
    """

    def __init__(self, wanted: int) -> None:
        self.number = wanted
        for _ in range(MOST_TRIES):
            try:
                weakref.finalize(self, os.close, _taken(self.number))
            except OSError as error:
                why = error
            else:
                return
            self.number = free_port()
        raise BadInputError(
            f"cannot lock a port in {_directory()}: {why.strerror}; set TMPDIR to a directory of yours"
        )


def _taken(number: int) -> int:
    """Locks the file of a port on which nothing listens. Returns the file's descriptor.

    Raises:
        OSError: the port is in use, or its file cannot be locked, for example because another user owns the file.
    """
    # Use O_NOFOLLOW and no O_TRUNC, because somebody may have put a link there, to any file of this user.
    with contextlib.ExitStack() as unless_taken, socket.socket() as probe:
        file = os.open(lock_of(number), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        unless_taken.callback(os.close, file)
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((LOOPBACK, number))
        unless_taken.pop_all()
        return file


def lock_of(port: int) -> Path:
    """The file that is locked while a `ddpjob run` of this user holds this port."""
    return _directory() / f"ddpjob-port-{port}.{os.getuid()}"


def _directory() -> Path:
    """The directory of the lock files, which is the system's directory for temporary files.

    Raises:
        BadInputError: neither TMPDIR nor another directory for temporary files is writable.
    """
    try:
        return Path(tempfile.gettempdir())
    except FileNotFoundError as error:
        raise BadInputError(
            f"cannot lock a port: {error.strerror}; set TMPDIR to a directory of yours that has room"
        ) from None


PORTS = range(20_000, 29_000)
"""The ports to choose from. They are below the range of ephemeral ports (on Linux from 32768 on,
net.ipv4.ip_local_port_range), because any program's connection could take an ephemeral port before it is used here.
PyTorch's default ports (29400, 29500) are left out too, so that they stay free for other programs."""


def free_port() -> int:
    """A random port of PORTS on which nothing listens."""
    while True:
        number = random.SystemRandom().choice(PORTS)
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind((LOOPBACK, number))
            return number


def processes_of(variables: dict[str, str]) -> list[psutil.Process]:
    """Processes of this machine whose environment has all of these variables with these values."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            environment = {} if process.status() == psutil.STATUS_ZOMBIE else process.environ()
            if all(environment.get(name) == value for name, value in variables.items()):
                found.append(process)
    return found
