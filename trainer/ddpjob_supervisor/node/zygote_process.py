"""Starts the zygote. This module has as few imports as possible, so that the zygote can be started first."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass

PRELOADED = ("torch", "torch.distributed", "torch.nn.parallel", "torch._dynamo")
"""Modules that every rank imports by its first step; DistributedDataParallel's constructor needs torch._dynamo."""

TRAINER_PRELOADED = (
    "ddpjob_trainer.main",
    "ddpjob_trainer.train",
    "ddpjob_examples.convnet",
    "ddpjob_examples.mlp",
)
"""Modules that a rank of `ddpjob-train` imports in addition."""

ZYGOTE = f"{__package__}.zygote"


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
        self.process.send_signal(signal.SIGKILL)  # Does nothing once `wait` has returned.

    def wait(self) -> None:
        """Waits until the zygote has ended."""
        self.process.wait()


def start_zygote(preloaded: Sequence[str], directory: str) -> ZygoteProcess:
    """Starts a zygote that imports the modules `preloaded`, and reads requests from its end of a connection.

    The zygote looks for the modules where the program would: in `directory` first.
    """
    ours, theirs = socket.socketpair()
    with theirs:
        return ZygoteProcess(start(theirs, preloaded, directory), ours)


def start(connection: socket.socket, preloaded: Sequence[str], directory: str) -> subprocess.Popen[bytes]:
    """Starts only the process, which inherits the socket `connection`."""
    return subprocess.Popen(
        [
            sys.executable,
            "-P",  # Do not search the working directory: a queue.py there would hide the standard library's.
            "-m",
            ZYGOTE,
            str(connection.fileno()),
            str(os.getpid()),
            directory,
            *preloaded,
        ],
        pass_fds=[connection.fileno()],
        start_new_session=True,
    )
