"""Starts the zygote. This module imports as little as possible, so that the zygote can be started first."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

PRELOADED = ("torch", "torch.distributed", "torch.nn.parallel", "torch._dynamo")
"""Modules that every rank has imported by its first step. DistributedDataParallel's constructor needs
torch._dynamo."""

TRAINER_PRELOADED = (
    "ddpjob_trainer.main",
    "ddpjob_trainer.train",
    "ddpjob_examples.convnet",
    "ddpjob_examples.mlp",
)
"""Modules that a rank of `ddpjob-train` imports in addition."""

ZYGOTE = f"{__package__}.zygote"


@dataclass(frozen=True, slots=True)
class Preload:
    """The modules that a zygote imports, and the environment for these imports."""

    modules: Sequence[str] = PRELOADED
    directory: str = ""
    """The directory that is searched first for modules, as in the program; empty for the working directory."""
    threads: int | None = None
    """OMP_NUM_THREADS, unless the supervisor's environment sets it."""
    set_by_program: Mapping[str, str] = field(default_factory=dict)
    """Variables that the program sets before it imports PyTorch."""


@dataclass(frozen=True, slots=True)
class ZygoteProcess:
    """A zygote, and the supervisor's end of the connection to it."""

    process: subprocess.Popen[bytes]
    connection: socket.socket

    @property
    def pid(self) -> int:
        """The process ID."""
        return self.process.pid

    def kill(self) -> None:
        """Kills the zygote and, with it, its ranks."""
        self.process.send_signal(signal.SIGKILL)  # Does nothing if `wait` has returned.

    def wait(self) -> None:
        """Waits until the zygote has ended."""
        self.process.wait()


def start_zygote(preload: Preload) -> ZygoteProcess:
    """Starts a zygote, which reads requests from its end of a connection."""
    ours, theirs = socket.socketpair()
    with theirs:
        return ZygoteProcess(start(theirs, preload), ours)


def start(connection: socket.socket, preload: Preload) -> subprocess.Popen[bytes]:
    """Starts only the process, which inherits the socket `connection`."""
    threads = {} if preload.threads is None else {"OMP_NUM_THREADS": str(preload.threads)}
    return subprocess.Popen(
        [
            sys.executable,
            "-P",  # Without -P, a queue.py in the working directory would hide the standard library's.
            "-m",
            ZYGOTE,
            str(connection.fileno()),
            str(os.getpid()),
            *words_of(preload),
        ],
        env={**threads, **os.environ},
        pass_fds=[connection.fileno()],
        start_new_session=True,
    )


def words_of(preload: Preload) -> list[str]:
    """The arguments with which a zygote is told what to import."""
    return [preload.directory, json.dumps(dict(preload.set_by_program), ensure_ascii=False), *preload.modules]
