"""Runs of the trainer with real processes."""

import json
import os
import resource
import signal
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.ports import hold_port
from tests.support.waiting import patience, wait_for
from tests.training.forking import FORKS, settle

DEADLINE_SECONDS = 120


@dataclass
class Run:
    """The processes of one world."""

    directory: Path
    processes: list[Any] = field(default_factory=list)

    def output(self, rank: int = 0) -> str:
        return (self.directory / f"{rank}.out").read_text()

    def errors(self, rank: int = 0) -> str:
        return (self.directory / f"{rank}.err").read_text()

    def report(self, rank: int = 0) -> dict[str, Any]:
        report: dict[str, Any] = json.loads((self.directory / f"{rank}.report").read_text())
        return report

    def steps(self, rank: int = 0) -> list[int]:
        lines = [line.split() for line in self.output(rank).splitlines() if line.startswith("progress")]
        return [int(line[2].removeprefix("step=").partition("/")[0]) for line in lines]

    def value(self, word: str, key: str, rank: int = 0) -> str:
        """A field of the last line that begins with a word."""
        line = [line for line in self.output(rank).splitlines() if line.startswith(f"{word} ")][-1]
        return dict(token.partition("=")[::2] for token in line.split()[1:])[key]

    def wait(self, what: str, happens: Callable[[], object]) -> None:
        """Until something is there to be seen."""
        wait_for(what, happens, DEADLINE_SECONDS, story=self.story)

    def send(self, number: signal.Signals, rank: int = 0) -> None:
        os.kill(self.processes[rank].pid, number)

    def end(self) -> list[int]:
        """The exit codes, once all processes have ended."""
        return [self.end_of(rank) for rank in range(len(self.processes))]

    def end_of(self, rank: int) -> int:
        """The exit code of the process that was started in this place, once it has ended."""
        process = self.processes[rank]
        process.join(patience(DEADLINE_SECONDS))
        assert process.exitcode is not None, f"process {rank} does not end:\n{self.story()}"
        code: int = process.exitcode
        return code

    def kill(self) -> None:
        for process in self.processes:
            process.kill()

    def story(self) -> str:
        """All that was said, for the message of a failed test."""
        return "\n".join(path.name + ":\n" + path.read_text() for path in sorted(self.directory.glob("*.*")))


def start(
    directory: Path,
    size: int,
    *arguments: object,
    flags: Iterable[object] = ("--threads", 1, "--log-every", 1),
    env: Mapping[str, str] | None = None,
    ranks: Iterable[int] | None = None,
    file_limit: int | None = None,
) -> Run:
    """Starts the processes of a world, or only some of its ranks. No file of rank 0's gets longer than `file_limit`.

    What they are given is `flags`, which make a test short and its output full, and the arguments.
    """
    directory.mkdir(parents=True, exist_ok=True)
    run, port = Run(directory), hold_port()
    for rank in range(size) if ranks is None else ranks:
        environment = {
            **os.environ,
            **world(rank, size, port),
            "DDPJOB_TERMINATION_LOG": str(directory / f"{rank}.report"),
            **(env or {}),
        }
        argv = ["ddpjob-train", *map(str, (*flags, *arguments))]
        process = FORKS.Process(
            target=_train,
            args=(argv, environment, str(directory / str(rank)), None if rank else file_limit),
            daemon=True,
        )
        for name in ("out", "err"):
            (directory / f"{rank}.{name}").touch()
        process.start()
        run.processes.append(process)
    return run


def world(rank: int, size: int, port: int) -> dict[str, str]:
    """The contract's variables of a pod with one process."""
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(size),
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "NNODES": str(size),
        "NODE_RANK": str(rank),
        "NPROC_PER_NODE": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }


def _train(argv: list[str], environment: dict[str, str], files: str, file_limit: int | None) -> None:
    if file_limit is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (file_limit, file_limit))
    settle(environment, [(1, Path(f"{files}.out")), (2, Path(f"{files}.err"))])
    sys.argv = argv
    from ddpjob_trainer.main import main  # noqa: PLC0415  (in the child)

    main()
