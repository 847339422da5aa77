"""Runs a script that trains with the library in real processes, one of which kills itself at a random line."""

import os
import random
import runpy
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.killed_scripts import LIBRARY, Fuse
from tests.support.ports import hold_port
from tests.support.waiting import patience
from tests.training.forking import FORKS, settle
from tests.training.ranks import world

DEADLINE_SECONDS = 120
MOST_LINES = 2**62
LINES_OF_A_SCRIPT = 300
"""About as many as a script executes."""


@dataclass(frozen=True)
class Kill:
    """A rank that kills its own process once it has executed so many lines of the script or of the library."""

    rank: int
    lines: int
    of_library: bool

    def fuse(self, script: Path) -> Fuse:
        files = LIBRARY if self.of_library else str(script)
        return Fuse(files, self.lines, lambda: os.kill(os.getpid(), signal.SIGKILL), in_threads=self.of_library)


@dataclass(frozen=True)
class Place:
    """Where scripts save: each in its own directory or, if there is a URL, each below it.

    env  what a process needs to reach the URL
    """

    url: str = ""
    env: Mapping[str, str] = field(default_factory=dict)

    def of(self, directory: Path) -> str:
        """Where the script in this directory saves."""
        return f"{self.url}{directory}" if self.url else str(directory / "checkpoints")


HERE = Place()


@dataclass
class Script:
    """A script, and the directory of its notes."""

    directory: Path
    source: str
    size: int
    place: Place = HERE
    outputs: list[Path] = field(default_factory=list)
    """What each rank of each attempt has printed."""
    processes: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.directory.mkdir(parents=True)
        self.path = self.directory / "train.py"
        self.path.write_text(self.source)

    def run(self, kill: Kill | None = None) -> list[int]:
        """Makes an attempt; returns the ranks' exit codes once all processes have ended."""
        port = hold_port()
        attempt = len(self.outputs) // self.size
        outputs = [self.directory / f"{attempt}.{rank}.out" for rank in range(self.size)]
        self.outputs += outputs
        self.processes = []
        before = self._noted(kill.rank) if kill else ""
        for rank, output in enumerate(outputs):
            output.touch()
            environment = {
                **os.environ,
                **self.place.env,
                **(world(rank, self.size, port) if self.size > 1 else {}),
                "HERE": str(self.directory),
                "DIRECTORY": self.place.of(self.directory),
                "DDPJOB_ATTEMPT": str(attempt + 1),
            }
            of_rank = kill if kill and kill.rank == rank else None
            process = FORKS.Process(target=_run, args=(self.path, environment, output, of_rank), daemon=True)
            process.start()
            self.processes.append(process)
        if kill:
            killed = self.processes[kill.rank]
            killed.join(patience(DEADLINE_SECONDS))
            if killed.exitcode and "seen" not in self._noted(kill.rank).removeprefix(before):
                self.end()  # The others may wait for this rank to form a group. A supervisor would end them.
        for process in self.processes:
            process.join(patience(DEADLINE_SECONDS))
        codes = [process.exitcode for process in self.processes]
        assert None not in codes, f"exit codes: {codes}, after {kill}\n{self.story()}"
        return codes

    def _noted(self, rank: int) -> str:
        history = self.directory / f"history-{rank}"
        return history.read_text() if history.exists() else ""

    def run_and_count(self) -> int:
        """Runs the script undisturbed; returns the number of the library's lines that rank 0 has executed."""
        assert self.run(Kill(0, MOST_LINES, of_library=True)) == [0] * self.size, self.story()
        return int((self.directory / "lines").read_text())

    def story(self) -> str:
        """All output, for the message of a failed test."""
        return "\n".join(f"{path.name}:\n{path.read_text()}" for path in self.outputs if path.exists())

    def end(self) -> None:
        for process in self.processes:
            process.kill()


def draw_kill(size: int, lines_of_library: int) -> Kill:
    """A kill of a random rank after a random number of lines."""
    of_library = random.random() < 0.5
    return Kill(
        random.randrange(size), random.randint(1, lines_of_library if of_library else LINES_OF_A_SCRIPT), of_library
    )


def _run(script: Path, environment: dict[str, str], output: Path, kill: Kill | None) -> None:
    settle(environment, [(1, output), (2, output)])
    sys.argv = [str(script)]
    if kill is None:
        runpy.run_path(str(script), run_name="__main__")
        return
    with kill.fuse(script) as fuse:
        runpy.run_path(str(script), run_name="__main__")
    if kill.lines == MOST_LINES:
        (script.parent / "lines").write_text(str(kill.lines - fuse.lines))
