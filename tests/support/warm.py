"""Programs that are forked from a process that has imported them, because tests start them by the hundred.

Importing the operator takes 0.7 s of a core, and importing the command 0.5 s, but forking them takes only some
milliseconds. A forked program can be killed, exits, and dies with the tests like a program that is started. A program
that needs another interpreter (`LD_PRELOAD`, `PYTHONPATH`) must be started.
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
from threading import Lock, Thread

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


class Command(Fork):
    """A forked process whose output, standard output and error in one, is read from a pipe as text."""

    def __init__(self, told: Connection, output: int) -> None:
        super().__init__(told)
        self.stdout = os.fdopen(output, encoding="utf-8")

    def communicate(self, timeout: float | None = None) -> tuple[str, None]:
        """Waits until the process has ended and all of its output is read. The second value is for standard error."""
        read: list[str] = []
        reader = Thread(target=lambda: read.append(self.stdout.read()), daemon=True)
        reader.start()
        reader.join(timeout)
        if reader.is_alive():
            raise subprocess.TimeoutExpired(f"the fork {self.pid}", timeout or 0.0)
        self.wait(timeout)
        self.stdout.close()
        return read[0], None

    def terminate(self) -> None:
        """Sends SIGTERM, unless the process has ended."""
        self.send_signal(signal.SIGTERM)


class Template:
    """A process that has imported a module with a `main`, and perhaps others. It ends together with this process."""

    def __init__(self, module: str, *others: str) -> None:
        self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            words = (str(theirs.fileno()), module, *others)
            self._process = start_with_us(sys.executable, "-P", TEMPLATE, *words, pass_fds=[theirs.fileno()])

    def close(self) -> None:
        """Ends the template, and all processes that were forked from it."""
        self._requests.close()
        self._process.wait()

    def fork(
        self, argv: Sequence[str], environment: Mapping[str, str], log: Path, directory: Path | None = None
    ) -> Fork:
        """Runs `main` in a new process, whose output is appended to a file."""
        with log.open("ab") as output:
            return Fork(self._request(argv, environment, output.fileno(), directory))

    def pipe(self, argv: Sequence[str], environment: Mapping[str, str], directory: Path) -> Command:
        """Runs `main` in a new process, whose output can be read."""
        reading, writing = os.pipe()
        try:
            return Command(self._request(argv, environment, writing, directory), reading)
        finally:
            os.close(writing)

    def _request(
        self, argv: Sequence[str], environment: Mapping[str, str], output: int, directory: Path | None
    ) -> Connection:
        ours, theirs = Pipe(duplex=False)
        there = None if directory is None else str(directory)
        request = json.dumps({"argv": argv, "environment": dict(environment), "directory": there})
        with theirs:
            socket.send_fds(self._requests, [request.encode()], [output, theirs.fileno()])
        return ours


@cache
def _template(module: str, *others: str) -> Template:
    template = Template(module, *others)
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


def pipe_command(argv: Sequence[str | Path], environment: Mapping[str, str], directory: Path) -> Command:
    """Works like `subprocess.Popen` with `ddpjob`, whose path stands first in `argv`."""
    return _command().pipe([*map(str, argv)], environment, directory)


def fork_command(argv: Sequence[str | Path], environment: Mapping[str, str], directory: Path, screen: Path) -> Fork:
    """Works like `pipe_command`, but the output is appended to a file."""
    return _command().fork([*map(str, argv)], environment, screen, directory)


def _command() -> Template:
    return _template("ddpjob_operator.cli.main", "ddpjob_operator.cli.commands", "ddpjob_operator.cli.cluster")
