"""A gang that is held at the points of the fault table, faults of every kind, and the operator's part."""

import contextlib
import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from tests.support.waiting import patience
from tests.training.faults import holds
from tests.training.faults.holds import Held
from tests.training.faults.table import AT_NODE_0, Program, Result, When, Who
from tests.training.gang import Gang

ROOT = Path(__file__).resolve().parents[3]

WORDS = {
    Program.TRAINER: (
        *("-m", "ddpjob_trainer", "--workload", "tests.training.faults.task:Held"),
        *("--checkpoint-every-steps", "3"),
    ),
    Program.TRAINING: ("-m", "tests.training.faults.script", "training"),
    Program.CHECKPOINTS: ("-m", "tests.training.faults.script", "checkpoints"),
}

PATIENCE = "FAULTS_PATIENCE_SECONDS"
"""The variable that shortens the time that ranks wait for each other, where a frozen one is waited for."""


@dataclass(frozen=True, slots=True)
class Start:
    """A rank has begun to run the program in an attempt."""

    rank: int
    attempt: int
    time: float


@dataclass
class Scene(Gang):
    """Nodes whose every incarnation has an address of its own, as pods have."""

    module: str = "tests.training.faults.supervisor"
    program: Program = Program.TRAINER
    _awaited: tuple[frozenset[int], int] = (frozenset(), 0)

    def address(self, node: int) -> str:
        return f"127.0.{self.incarnations.get(node, 1)}.{1 + node}"

    @property
    def words(self) -> tuple[str, ...]:
        """What a supervisor is to run."""
        limited = self.program is Program.TRAINER and PATIENCE in self.env
        return (*WORDS[self.program], *(["--timeout-seconds", self.env[PATIENCE]] if limited else []))

    def start_all(self, attempt: int, **env: str) -> None:
        """Starts every node, as the operator starts an attempt."""
        for node in range(self.nodes):
            self.start_node(node, *self.words, attempt=attempt, **env)

    def replace(self, node: int, attempt: int) -> None:
        """Starts a pod in the place of one that is lost, as the operator does."""
        living = [self.control(other) for other in self.supervisors if other != node]
        self.start_node(node, *self.words, attempt=attempt, peers=",".join(living))

    def plan(self, who: Who, when: When, after: int) -> None:
        """Has the rank to which it happens wait for it, in the next attempt."""
        rank = 0 if who in AT_NODE_0 else 1
        waiting = {0: "save", 1: "saved its part"} if when is When.SAVE else {rank: str(when)}
        holds.plan(self.directory, waiting, after)
        self._awaited = (frozenset(waiting), after)

    def await_held(self) -> dict[int, Held]:
        """The ranks that wait as planned, by rank."""
        ranks, after = self._awaited
        found: dict[int, Held] = {}

        def all_wait() -> bool:
            found.update({one.rank: one for one in holds.held(self.directory) if one.attempt > after})
            return ranks <= found.keys()

        self.wait(f"ranks {ranks} wait", all_wait)
        return found

    def starts(self) -> list[Start]:
        """All starts of ranks."""
        noted = (words for words in self._noted() if words[0] == "start")
        return [Start(int(rank), int(attempt), float(at)) for _, rank, attempt, _, at in noted]

    def await_start(self, after: int) -> float:
        """When all ranks had begun to run the program in an attempt after this one."""
        found: dict[int, Start] = {}

        def all_there() -> bool:
            found.update({start.rank: start for start in self.starts() if start.attempt > after})
            return len(found) == self.nodes

        self.wait(f"all ranks run in an attempt after {after}", all_there)
        return max(start.time for start in found.values())

    def attempts_of_steps(self) -> list[int]:
        """The attempt of each step, in the order in which they were made."""
        return [int(words[2]) for words in self._noted() if words[0] == "step"]

    def _noted(self) -> list[list[str]]:
        try:
            return [line.split() for line in (self.directory / "noted").read_text().splitlines()]
        except FileNotFoundError:
            return []

    def incidents(self) -> list[dict[str, Any]]:
        """What rank 0's supervisor has recorded."""
        incidents: list[dict[str, Any]] = self.status()["incidents"]
        return incidents

    def story(self) -> str:
        ends = {node: supervisor.poll() for node, supervisor in self.supervisors.items()}
        return f"supervisors' exit codes: {ends}\n{super().story()}"

    def is_missing(self, nodes: list[int]) -> bool:
        """Whether rank 0's supervisor lives and misses just these nodes."""
        try:
            missing: list[int] = self.status()["missing"]
        except OSError:
            return False
        return missing == nodes

    def send(self, node: int, number: signal.Signals) -> None:
        """Sends a signal to every process of a node."""
        for process in self.family(node):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(number)

    def family(self, node: int) -> list[psutil.Process]:
        """All processes of a node, its supervisor first."""
        supervisor = psutil.Process(self.supervisors[node].pid)
        return [supervisor, *supervisor.children(recursive=True)]


def inject(scene: Scene, who: Who, held: dict[int, Held], attempt: int) -> None:
    """Does it, and what the operator would do then. `attempt` is the operator's next one."""
    rank = held.get(0 if who in AT_NODE_0 else 1)
    FAULTS[who](scene, rank, attempt)


def _kill_rank(_: Scene, rank: Held | None, __: int) -> None:
    assert rank is not None
    os.kill(rank.pid, signal.SIGKILL)


def _raise(scene: Scene, rank: Held | None, _: int) -> None:
    assert rank is not None
    holds.tell(scene.directory, rank, holds.RAISE)


def _freeze_rank(_: Scene, rank: Held | None, __: int) -> None:
    assert rank is not None
    os.kill(rank.pid, signal.SIGSTOP)


def _kill_zygote(scene: Scene, _: Held | None, __: int) -> None:
    (zygote,) = psutil.Process(scene.supervisors[1].pid).children()
    zygote.kill()


def _kill_supervisor(node: int) -> "Fault":
    def kill(scene: Scene, _: Held | None, attempt: int) -> None:
        family = scene.family(node)
        os.kill(scene.supervisors[node].pid, signal.SIGKILL)
        scene.supervisors[node].wait()
        _, alive = psutil.wait_procs(family, timeout=patience(30))
        assert not alive, f"it was survived by {[process.cmdline() for process in alive]}"
        _replace(scene, node, attempt)

    return kill


def _kill_pod(node: int) -> "Fault":
    def kill(scene: Scene, _: Held | None, attempt: int) -> None:
        scene.kill_node(node)
        _replace(scene, node, attempt)

    return kill


def _freeze_supervisor(scene: Scene, _: Held | None, __: int) -> None:
    supervisor = scene.supervisors[1].pid
    os.kill(supervisor, signal.SIGSTOP)
    try:
        if scene.supervisors[0].poll() is None:
            scene.wait("node 1 is given up", lambda: 1 in scene.status()["missing"])
        else:
            time.sleep(1)
    finally:
        os.kill(supervisor, signal.SIGCONT)


def _cut_link(scene: Scene, _: Held | None, __: int) -> None:
    scene.supervisors[1].send_signal(signal.SIGUSR1)


def _lose_node(scene: Scene, rank: Held | None, attempt: int) -> None:
    """Its processes stand still, as if its network were gone, and go on when its place is taken."""
    scene.send(1, signal.SIGSTOP)
    lost, family = scene.supervisors[1], scene.family(1)
    log = scene.directory / f"node-1.{scene.incarnations[1]}.log"
    try:
        if scene.supervisors[0].poll() is not None:  # Nobody is there to give it up, but the operator.
            return
        scene.wait("node 1 is given up", lambda: 1 in scene.status()["missing"])
        _replace(scene, 1, attempt)
        scene.wait("node 1 is there again", lambda: 1 not in scene.status()["missing"])
        if rank is not None:
            holds.tell(scene.directory, rank, holds.GO)
        for process in family:
            process.send_signal(signal.SIGCONT)
        scene.wait("the former node is refused", lambda: "a newer pod of node 1 has joined before" in log.read_text())
    finally:
        for process in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        lost.wait()


def _replace(scene: Scene, node: int, attempt: int) -> None:
    if all(supervisor.poll() is None for other, supervisor in scene.supervisors.items() if other != node):
        scene.replace(node, attempt)


Fault = Callable[[Scene, Held | None, int], None]

FAULTS: dict[Who, Fault] = {
    Who.RANK: _kill_rank,
    Who.RAISES: _raise,
    Who.RANK_0: _kill_rank,
    Who.ZYGOTE: _kill_zygote,
    Who.SUPERVISOR: _kill_supervisor(1),
    Who.LEADER: _kill_supervisor(0),
    Who.POD: _kill_pod(1),
    Who.POD_0: _kill_pod(0),
    Who.FROZEN: _freeze_rank,
    Who.SUPERVISOR_FROZEN: _freeze_supervisor,
    Who.LINK: _cut_link,
    Who.NODE: _lose_node,
}


@contextlib.contextmanager
def a_scene(directory: Path, nodes: int, program: Program = Program.TRAINER, **env: str) -> Iterator[Scene]:
    """A gang that does not outlive the block."""
    common = {
        holds.DIRECTORY: str(directory),
        "PYTHONPATH": str(ROOT),
        "DDPJOB_CHECKPOINT_DIR": str(directory / "checkpoints"),
        "DDPJOB_PREFLIGHT": "Full" if program is Program.TRAINER else "Disabled",
    }
    scene = Scene(directory, nodes, env={**common, **env}, program=program)
    try:
        yield scene
    finally:
        for node in scene.supervisors:
            scene.kill_node(node)


class Results:
    """What came of the faults, in a file for each test."""

    def __init__(self, file: Path | None) -> None:
        self._file = file
        self._cells: list[dict[str, Any]] = []

    def record(self, program: Program, who: Who, when: When, result: Result, seconds: float | None = None) -> None:
        """Keeps one."""
        cell = {"program": program.name, "who": who.name, "when": when.name}
        self._cells.append(cell | {"result": result.name, "seconds": seconds})
        if self._file is not None:
            self._file.write_text(json.dumps(self._cells))
