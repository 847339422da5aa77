"""Measures the time from `kill -9` of a rank to the next step of all ranks, with three kinds of restart.

A restart is done in place, by torchrun, or with new pods.
"""

import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import psutil
from ddpjob_operator.local.machine import free_port

from bench.jobs import PLENTY, ROOT, a_place, quiet
from bench.notes import Notes, NotGoneOnError
from bench.noting import NOTES
from bench.table import Row
from tests.training.forking import start_supervisor_cold
from tests.training.gang import SCRIPT, a_gang

NODES = 2
CALM_SECONDS = 2.5
"""The time between two kills. It is longer than the two seconds between checkpoints."""
LONG = "1000000"
OWN_STORE = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
"""Gives torchrun's workers their own store. In the agent's store they find addresses of workers that have ended, so
that most restarts fail at first: https://github.com/pytorch/pytorch/issues/135712. Informed users set this."""
MEDIAN_SECONDS, WORST_SECONDS, TIMES_TORCHRUN = 0.2, 1.5, 10


@dataclass(frozen=True)
class Training:
    """A training that runs under any launcher."""

    notes: Notes
    over: Callable[[], bool]


@dataclass
class Way:
    """A way to run the training, with the seconds from each kill until training continued."""

    name: str
    start: Callable[[Path], AbstractContextManager[Training]]
    kills: int
    """The number of kills in each round."""
    seconds: list[float] = field(default_factory=list)
    failed: int = 0
    """How many kills training did not survive. Such kills have no seconds, and do not count in a ratio."""

    def round(self, directory: Path) -> None:
        """Starts the training, and kills its ranks in turn."""
        with self.start(directory) as training:
            training.notes.others((), training.over)
            for _ in range(self.kills):
                training.notes.watch(CALM_SECONDS)
                try:
                    seconds = kill(training, victim=(len(self.seconds) + self.failed) % NODES)
                except NotGoneOnError as error:
                    self.failed += 1
                    print(f"  {self.name}: {error}", flush=True)
                    return
                self.seconds.append(seconds)
                print(f"  {self.name}: {seconds:.2f} s", flush=True)

    @property
    def median(self) -> float | None:
        """The median of the seconds; None if training never continued."""
        return statistics.median(self.seconds) if self.seconds else None

    def within(self, median: float, worst: float) -> bool:
        """Whether training continued after every kill, within these limits for the median and the worst time."""
        return bool(self.seconds) and not self.failed and self.median <= median and max(self.seconds) <= worst  # type: ignore[operator]

    def told(self) -> str:
        """The median, the worst time, the number of kills and the number of failures, as text."""
        failed = f"{self.failed} of {self.failed + len(self.seconds)} kills: training did not go on"
        if not self.seconds:
            return failed
        told = f"median {self.median:.2f} s, worst {max(self.seconds):.2f} s of {len(self.seconds)}"
        return f"{told}; {failed}" if self.failed else told


def kill(training: Training, victim: int) -> float:
    """Kills a rank. Returns the seconds until every rank has finished a step in a new process.

    Raises:
        NotGoneOnError: Training did not continue.
    """
    before = training.notes.pids()
    began = time.time()
    os.kill(training.notes.last[victim].pid, signal.SIGKILL)
    first = training.notes.others(before, training.over)
    return max(step.time for step in first.values()) - began


@contextmanager
def ours_in_place(directory: Path) -> Iterator[Training]:
    """Runs `ddpjob-train` under supervisors, with a checkpoint every two seconds."""
    env = {
        NOTES: str(directory / "notes"),
        "PYTHONPATH": str(ROOT),
        "DDPJOB_CHECKPOINT_DIR": str(directory / "checkpoints"),
        "DDPJOB_CHECKPOINT_EVERY_SECONDS": "2",
    }
    arguments = ("--workload", "bench.noting:Noted", "--epochs", LONG, "--log-every", LONG)
    yield from _in_place(directory, directory / "notes", env, "-m", "ddpjob_trainer", *arguments)


@contextmanager
def script_in_place(directory: Path) -> Iterator[Training]:
    """Runs a plain script under supervisors."""
    yield from _in_place(directory, directory / "steps", {}, "train.py", LONG)


def _in_place(directory: Path, notes: Path, env: dict[str, str], *words: str) -> Iterator[Training]:
    directory.mkdir(parents=True)
    with a_gang(directory, NODES, launch=start_supervisor_cold, **env) as gang:
        gang.start(*words)
        living = gang.supervisors.values()
        yield Training(Notes(notes, NODES), lambda: any(one.poll() is not None for one in living))


@contextmanager
def script_by_two_agents(directory: Path) -> Iterator[Training]:
    """Runs the plain script under two agents of torchrun, as on two nodes."""
    port = free_port()
    rendezvous = [f"--rdzv-endpoint=127.0.0.1:{port}", "--rdzv-backend=c10d", "--rdzv-id=bench", f"--nnodes={NODES}"]
    yield from _by_torchrun(directory, [[*rendezvous, f"--node-rank={node}"] for node in range(NODES)], processes=1)


@contextmanager
def script_by_one_agent(directory: Path) -> Iterator[Training]:
    """Runs the plain script under one agent of torchrun, as on one node."""
    yield from _by_torchrun(directory, [["--standalone"]], processes=NODES)


def _by_torchrun(directory: Path, agents: list[list[str]], processes: int) -> Iterator[Training]:
    script, notes = _script(directory), directory / "steps"
    env = os.environ | {"STEPS": str(notes), "DDPJOB_ATTEMPT": "0", "OMP_NUM_THREADS": "1", **OWN_STORE}
    torchrun = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={processes}", "--max-restarts=100"]
    with (directory / "log").open("wb") as log:
        started = [
            subprocess.Popen([*torchrun, *flags, script, LONG], env=env, stdout=log, stderr=subprocess.STDOUT)
            for flags in agents
        ]
    try:
        yield Training(Notes(notes, NODES), lambda: any(agent.poll() is not None for agent in started))
    finally:
        for agent in started:
            _end(agent)


@contextmanager
def script_recreated(directory: Path) -> Iterator[Training]:
    """Runs the plain script with `ddpjob run`, which replaces all pods."""
    with a_place(directory) as here:
        notes = directory / "steps"
        env = [{"name": "STEPS", "value": str(notes)}, {"name": "OMP_NUM_THREADS", "value": "1"}]
        restart = {**PLENTY, "mode": "Recreate"}
        command = (sys.executable, str(_script(directory)), LONG)
        file = here.job("anew", *command, nodes=NODES, backend="Gloo", restart=restart, container={"env": env})
        run = quiet(here, file)
        yield Training(Notes(notes, NODES), lambda: run.poll() is not None)


def _script(directory: Path) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    script = directory / "train.py"
    script.write_text(SCRIPT)
    return script


def _end(agent: subprocess.Popen[bytes]) -> None:
    """Kills an agent and its workers, each of which has its own session."""
    with suppress(psutil.NoSuchProcess):
        for process in [*psutil.Process(agent.pid).children(recursive=True), psutil.Process(agent.pid)]:
            with suppress(psutil.NoSuchProcess):
                process.kill()
    agent.wait()


def measure(directory: Path, *, rounds: int, kills: int) -> list[Row]:
    """Measures all ways in turn, so that other load affects all of them."""
    ours = Way("`ddpjob-train`, in place", ours_in_place, kills)
    script = Way("a plain script, in place", script_in_place, kills)
    one = Way("the script under torchrun, one agent with two processes", script_by_one_agent, 1)
    two = Way("the script under torchrun, two agents", script_by_two_agents, 1)
    anew = Way("the script, all pods replaced (`restart.mode: Recreate`)", script_recreated, 1)
    for number in range(rounds):
        for place, way in enumerate((ours, one, script, two, anew)):
            way.round(directory / f"{number}-{place}")
    target = f"median ≤ {MEDIAN_SECONDS} s, worst ≤ {WORST_SECONDS} s"
    rows = [Row(way.name, way.told(), target, way.within(MEDIAN_SECONDS, WORST_SECONDS)) for way in (ours, script)]
    rows += [Row(way.name, way.told()) for way in (one, two, anew)]
    return [*rows, beside_torchrun(script, (one, two)), beside("new pods", script, anew)]


def beside_torchrun(ours: Way, theirs: Sequence[Way]) -> Row:
    """A row that compares restarts in place with the faster of torchrun's ways.

    The row has no ratio if training never continued under torchrun.
    """
    went_on = [way for way in theirs if way.median is not None]
    row = beside("torchrun", ours, min(went_on, key=lambda way: way.median or 0.0) if went_on else theirs[0])
    met = None if row.met is None else row.met and not ours.failed
    return replace(row, target=f"≥ {TIMES_TORCHRUN} times", met=met)


def beside(name: str, ours: Way, theirs: Way) -> Row:
    """A row that shows how many times as long `theirs` takes as `ours`."""
    what = f"the script in place beside {name}"
    if ours.median is None or theirs.median is None:
        return Row(what, "no ratio: one of them never went on")
    times = theirs.median / ours.median
    return Row(what, f"{times:.1f} times as fast ({theirs.name})", met=times >= TIMES_TORCHRUN)
