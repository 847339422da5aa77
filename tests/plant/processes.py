"""Programs of the plant. They log into files, and die with the process that started them, however that one dies."""

import socket
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from .errors import PlantError

LOG_TAIL_LINES = 15

# The kernel sends the signal when the *thread* that started a program ends, so all programs are started by a thread
# that lives as long as Python. setpriv is used instead of a preexec_fn so that no Python code runs between fork and
# exec.
_starter = ThreadPoolExecutor(max_workers=1, thread_name_prefix="plant")
_DIE_WITH_US = ("setpriv", "--pdeathsig", "KILL", "--")


class Process(Protocol):
    """The parts of `subprocess.Popen` that are used.

    A program is a Popen, unless it is forked (tests/support/warm.py).
    """

    pid: int

    def poll(self) -> int | None:
        """The exit code; None if the process has not ended."""

    def wait(self, timeout: float | None = None) -> int:
        """Waits until the process has ended, and returns its exit code."""

    def send_signal(self, number: int, /) -> None:
        """Sends a signal, unless the process has ended."""

    def kill(self) -> None:
        """Sends SIGKILL."""


@dataclass
class Program:
    """A running program."""

    name: str
    log: Path
    process: Process

    def check(self) -> None:
        """If the program has ended, raises a PlantError with the end of its log."""
        code = self.process.poll()
        if code is not None:
            raise PlantError(f"{self.name} ended with {code}. {self.last_words()}")

    def last_words(self) -> str:
        """The last lines of the program's log."""
        lines = self.log.read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:]
        return "\n".join([f"The end of {self.log}:", *lines])

    def kill(self) -> None:
        """Kills the program, and waits until it has ended."""
        self.process.kill()
        self.process.wait()


@dataclass
class Programs:
    """All programs of one plant, in the order in which they were started."""

    logs: Path
    running: dict[str, Program] = field(default_factory=dict)

    def start(self, name: str, *command: str | Path) -> Program:
        """Starts a program.

        Its output is appended to logs/<name>.log, as is that of other programs with this name.
        """
        self.logs.mkdir(exist_ok=True)
        log = self.logs / f"{name}.log"
        with log.open("ab") as file:
            process = start_with_us(*command, stdout=file, stderr=subprocess.STDOUT)
        self.running[name] = Program(name, log, process)
        return self.running[name]

    def check(self) -> None:
        """Raises a PlantError if one of the programs has ended."""
        for program in self.running.values():
            program.check()

    def kill(self) -> None:
        """Kills all programs, the last started first."""
        for program in reversed(self.running.values()):
            program.process.kill()
        for program in self.running.values():
            program.process.wait()
        self.running.clear()


def start_with_us(*command: str | Path, **options: Any) -> subprocess.Popen[bytes]:
    """Starts a process in its own session, which dies with this process.

    `options` are those of `subprocess.Popen`.
    """
    line = [*_DIE_WITH_US, *map(str, command)]

    def start() -> subprocess.Popen[bytes]:
        return subprocess.Popen(line, stdin=subprocess.DEVNULL, start_new_session=True, **options)

    return _starter.submit(start).result()


def reserve_port(address: str = "127.0.0.1") -> socket.socket:
    """Returns a socket with a free port.

    While the socket is open, the system gives the port only to programs that request this very port.

    A program that sets SO_REUSEADDR, as programs written in Go do, can listen on the port meanwhile.
    """
    held = socket.socket()
    held.bind((address, 0))
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    return held
