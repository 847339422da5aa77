"""Programs that are forked from a process that has imported them, because tests start them by the hundred.

Importing the operator takes 0.7 s of a core, but forking it takes only some milliseconds. A forked program can be
killed, exits, and dies with the tests like a program that is started. A program that needs another interpreter
(`LD_PRELOAD`) must be started.
"""

import atexit
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Lock

from tests.plant.processes import Program, Programs, start_with_us

TEMPLATE = Path(__file__).with_name("template.py")

INHERITED = dict(os.environ)
"""A copy, because pytest sets and deletes a variable for each test, perhaps while a thread starts a program."""


class Fork:
    """A forked process, with those parts of the interface of `subprocess.Popen` that are used."""

    def __init__(self, told: Connection) -> None:
        self.pid: int = told.recv()
        self.returncode: int | None = None
        self._told = told
        self._reading = Lock()

    def poll(self) -> int | None:
        """The exit code; None if the process has not ended."""
        return self._learn(0.0)

    def wait(self, timeout: float | None = None) -> int:
        """Waits until the process has ended, and returns its exit code."""
        code = self._learn(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(f"the fork {self.pid}", timeout or 0.0)
        return code

    def kill(self) -> None:
        """Kills the process, as `kill -9` does."""
        self.send_signal(signal.SIGKILL)

    def send_signal(self, number: int) -> None:
        """Sends a signal, unless the process has ended."""
        if self.poll() is None:
            # The process may have ended, and the message about its end may not have arrived yet.
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def _learn(self, timeout: float | None) -> int | None:
        if self.returncode is None and self._told.poll(timeout):
            with self._reading:  # If two threads wait, only one of them may read.
                if self.returncode is None:
                    self.returncode = self._told.recv()
        return self.returncode


class Template:
    """A process that has imported a module with a `main`. It ends together with this process."""

    def __init__(self, module: str) -> None:
        self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            command = (sys.executable, "-P", TEMPLATE, module, str(theirs.fileno()))
            self._process = start_with_us(*command, pass_fds=[theirs.fileno()])

    def close(self) -> None:
        """Ends the template, and all processes that were forked from it."""
        self._requests.close()
        self._process.wait()

    def fork(self, argv: Sequence[str], environment: Mapping[str, str], log: Path) -> Fork:
        """Runs `main` in a new process, whose output is appended to a file."""
        ours, theirs = Pipe(duplex=False)
        request = json.dumps({"argv": argv, "environment": dict(environment)})
        with theirs, log.open("ab") as output:
            socket.send_fds(self._requests, [request.encode()], [output.fileno(), theirs.fileno()])
        return Fork(ours)


@cache
def _template(module: str) -> Template:
    template = Template(module)
    atexit.register(template.close)
    return template


def fork_operator(programs: Programs, name: str, environment: Mapping[str, str], *flags: str) -> Program:
    """Works like `programs.start` with `ddpjob-operator`."""
    programs.logs.mkdir(exist_ok=True)
    log = programs.logs / f"{name}.log"
    process = _template("ddpjob_operator.cluster.command").fork(
        ["ddpjob-operator", *flags], {**INHERITED, **environment}, log
    )
    programs.running[name] = Program(name, log, process)
    return programs.running[name]
