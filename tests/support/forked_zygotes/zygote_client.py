"""The supervisor's side: asks the template for a zygote."""

import os
import resource
import signal
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

ADDRESS = "ZYGOTE_TEMPLATE"
"""The variable with the path of the template's socket."""

LIMITS = tuple(number for name, number in sorted(vars(resource).items()) if name.startswith("RLIMIT_"))


class Zygote:
    """A zygote that was forked, with those parts of the interface of `subprocess.Popen` that supervisors use."""

    def __init__(self, pid: int, told: Connection) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._told = told

    def send_signal(self, number: int) -> None:
        """Sends a signal, unless the zygote has ended."""
        if self.returncode is None:
            with suppress(ProcessLookupError):  # It has ended, and `wait` has not been called yet.
                os.kill(self.pid, number)

    def wait(self) -> int:
        """Waits until the zygote has ended."""
        if self.returncode is None:
            self.returncode = self._told.recv()
        return self.returncode


def forking(start: Callable[..., Any], words_of: Callable[[Any], Sequence[str]]) -> Callable[..., Any]:
    """A function that forks a zygote if the template has one to offer, and otherwise starts it by `start`."""

    def fork_or_start(connection: socket.socket, preload: Any) -> Any:
        threads = {} if preload.threads is None else {"OMP_NUM_THREADS": str(preload.threads)}
        request = {
            "supervisor": os.getpid(),
            "words": words_of(preload),
            "environment": {**threads, **os.environ},
            "directory": str(Path.cwd()),
            "limits": [(number, resource.getrlimit(number)) for number in LIMITS],
            "cores": sorted(os.sched_getaffinity(0)),
            "priority": os.getpriority(os.PRIO_PROCESS, 0),
            "ignored": [number for number in signal.valid_signals() if signal.getsignal(number) is signal.SIG_IGN],
        }
        template = socket.socket(socket.AF_UNIX)
        try:
            template.connect(os.environ[ADDRESS])
            socket.send_fds(template, [b"\0"], [connection.fileno(), 0, 1, 2])
        except (KeyError, OSError):  # The tests have ended.
            template.close()
            return start(connection, preload)
        told = Connection(template.detach())
        told.send(request)
        pid = told.recv()
        return start(connection, preload) if pid is None else Zygote(pid, told)

    return fork_or_start
