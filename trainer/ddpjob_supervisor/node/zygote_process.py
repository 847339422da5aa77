"""The zygote as a process: started with as few imports as possible, so that it can be first."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass

PRELOADED = ("torch", "torch.distributed", "torch.nn.parallel", "torch._dynamo")
"""What any rank imports until its first step; DistributedDataParallel's constructor needs torch._dynamo."""

TRAINER_PRELOADED = (
    "ddpjob_trainer.main",
    "ddpjob_trainer.train",
    "ddpjob_examples.convnet",
    "ddpjob_examples.mlp",
)
"""What a rank of `ddpjob-train` imports as well."""

ZYGOTE = f"{__package__}.zygote"


@dataclass(frozen=True, slots=True)
class ZygoteProcess:
    """A zygote, and this side's end of the connection to it."""

    process: subprocess.Popen[bytes]
    connection: socket.socket

    @property
    def pid(self) -> int:
        """Its number."""
        return self.process.pid

    def kill(self) -> None:
        """Ends it at once, whatever it is doing, and with it what it has started."""
        self.process.send_signal(signal.SIGKILL)  # Not if it has ended, and somebody has waited for that.

    def wait(self) -> None:
        """Waits until it is gone."""
        self.process.wait()


def start_zygote(preloaded: Sequence[str], directory: str) -> ZygoteProcess:
    """Starts a zygote that imports these modules, and reads requests from its end of a connection.

    It looks for them where the program would, in `directory` first.
    """
    ours, theirs = socket.socketpair()
    with theirs:
        return ZygoteProcess(start(theirs, preloaded, directory), ours)


def start(connection: socket.socket, preloaded: Sequence[str], directory: str) -> subprocess.Popen[bytes]:
    """The process alone, at that end of a connection."""
    return subprocess.Popen(
        [
            sys.executable,
            "-P",  # Not in the working directory: a queue.py there is neither ours nor, usually, the program's.
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
