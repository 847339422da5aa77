"""Compares `ddpjob-train` with the smallest DDP script, and with processes that do not communicate.

The figures are printed and written into docs/reference/training-speed.md, each part with its circumstances. Exits
with 1 if a target is missed.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from ddpjob_operator.local.machine import free_port

from bench import diverging, library, loading, pairs, table
from bench.table import Part, Row
from tests.training.ranks import world

RANKS = 2
ROOT = Path(__file__).parents[1]
LEAST_OF_THE_LOOP, MOST_OF_THE_START, MOST_OF_THE_LAUNCH, LEAST_OF_SCALING = 0.99, 1.05, 1.0, 0.90
STEPS = {"ConvNet": 1200, "ResNet18": 30, "ConvNet28": 250}
"""The steps of a run, by model. They take about a dozen seconds on two cores."""
TURNS = 6
"""The number of pairs is multiplied by this if turns of one process are compared, because turns are short."""
QUICK = 20
"""The factor by which a quick run reduces the steps."""


@dataclass(frozen=True, slots=True)
class Pace:
    """The result of a run: the seconds from its start to the end of the first step, and the pace after that."""

    first_step_seconds: float
    steps_per_second: float

    def __str__(self) -> str:
        return f"{self.steps_per_second:.1f} steps/s, first after {self.first_step_seconds:.1f} s"


def measure(program: Sequence[str], *envs: Mapping[str, str]) -> list[Pace]:
    """Runs a program in all environments at the same time.

    Computes the paces from the first and last progress lines.
    """
    began = time.monotonic()
    command = [sys.executable, *program]
    processes = [
        subprocess.Popen(command, env={**os.environ, **env}, stdout=subprocess.PIPE, text=True, cwd=ROOT)
        for env in envs
    ]
    with ThreadPoolExecutor(len(processes)) as readers:
        paces = list(readers.map(lambda process: _pace(process, began), processes))
    if any(process.wait() for process in processes):
        sys.exit(f"failed: {' '.join(command)}")
    return paces


def _pace(process: subprocess.Popen[str], began: float) -> Pace:
    assert process.stdout
    seen = [(time.monotonic(), line) for line in process.stdout if line.startswith("progress")]
    if not seen:
        sys.exit(f"said nothing of its progress: {process.args!r}")
    (first, said_first), (last, said_last) = seen[0], seen[-1]
    return Pace(first - began, (_step(said_last) - _step(said_first)) / (last - first))


def _step(line: str) -> int:
    return int(line.partition("step=")[2].partition("/")[0])


def together(program: Sequence[str]) -> Pace:
    """Runs a program as two ranks of one world. Returns rank 0's pace."""
    port = free_port()
    return measure(program, *(world(rank, RANKS, port) for rank in range(RANKS)))[0]


def on_one_node(program: Sequence[str]) -> Pace:
    """Runs a program as two processes of a node, which its supervisor starts on separate cores."""
    return measure([*program, "--procs-per-node", str(RANKS)], {})[0]


def apart(program: Sequence[str]) -> Pace:
    """Runs a program twice at the same time, as two worlds of one rank. Returns the mean pace."""
    paces = measure(program, *({} for _ in range(RANKS)))
    return Pace(
        statistics.mean(pace.first_step_seconds for pace in paces),
        statistics.mean(pace.steps_per_second for pace in paces),
    )


def _ours(model: str, steps: int) -> list[str]:
    """The arguments of our trainer, with one thread per process and as few progress lines as the script prints."""
    return [
        *("-m", "ddpjob_trainer", "--workload", f"bench.models:{model}Bench"),
        *("--threads", "1", "--max-steps", str(steps), "--log-every", str(steps)),
    ]


def loop(count: int, *, quick: bool) -> list[Row]:
    """Compares our trainer with the script, each with two processes over gloo."""
    rows = []
    for model in ("ConvNet", "ResNet18"):
        steps = STEPS[model] // QUICK if quick else STEPS[model]
        ours, script = _ours(model, steps), ["-m", "bench.smallest_ddp", model, str(steps)]
        found = pairs.in_turn(count, lambda ours=ours: together(ours), lambda script=script: together(script))
        paces = [(mine.steps_per_second, other.steps_per_second) for mine, other in found]
        starts = [(mine.first_step_seconds, other.first_step_seconds) for mine, other in found]
        rows.append(pairs.ratio(f"{model}: pace", paces, "steps/s", least=LEAST_OF_THE_LOOP))
        rows.append(pairs.ratio(f"{model}: cold start to first step", starts, "s", most=MOST_OF_THE_START))
    return rows


def launch(count: int) -> list[Row]:
    """Compares `ddpjob run` with torchrun, both with the smallest script, until the first step is printed."""
    script, words = ["-m", "bench.smallest_ddp"], ["ConvNet", "2"]
    rows = []
    for how, size in {"two nodes": ["--nodes", "2"], "two processes of a node": ["--procs-per-node", "2"]}.items():
        ours = ["ddpjob", "run", *size, *script, "--", *words]
        theirs = ["torchrun", "--standalone", "--nproc-per-node", "2", *script, *words]
        found = pairs.in_turn(
            count, lambda ours=ours: until_first_step(ours), lambda theirs=theirs: until_first_step(theirs)
        )
        rows.append(pairs.ratio(f"ddpjob run, {how}: cold start to first step", found, "s", most=MOST_OF_THE_LAUNCH))
    return rows


def until_first_step(command: Sequence[str]) -> float:
    """Seconds from the start of a launcher until it prints the first progress line of its script."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as state:
        process = subprocess.Popen(
            [Path(sys.executable).with_name(command[0]), *command[1:]],
            env={**os.environ, "DDPJOB_RUN_DIR": f"{state}/runs", "XDG_STATE_HOME": state},
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        assert process.stdout
        seen = [time.monotonic() for line in process.stdout if "progress step=" in line]
        if process.wait() or not seen:
            sys.exit(f"failed: {' '.join(command)}")
    return seen[0] - began


def scaling(count: int, *, quick: bool) -> list[Row]:
    """Compares two processes with DDP and two independent processes."""
    steps = STEPS["ConvNet28"] // QUICK if quick else STEPS["ConvNet28"]
    program = _ours("ConvNet28", steps)
    found = pairs.in_turn(count, lambda: on_one_node(program), lambda: apart(program))
    paces = [(mine.steps_per_second, other.steps_per_second) for mine, other in found]
    what = "ConvNet on 28 x 28, batch 64: 2 processes with DDP beside 2 without"
    return [pairs.ratio(what, paces, "steps/s of each", least=LEAST_OF_SCALING)]


def main() -> None:
    """Measures, prints and writes the figures. Exits with 1 if a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="two short pairs, to see that it works; nothing is kept")
    parser.add_argument("--pairs", type=int, default=10, help="of each comparison (default 10)")
    parser.add_argument("--only", nargs="+", metavar="PART", choices=table.TRAINING.parts, help="parts")
    flags = parser.parse_args()
    count = 2 if flags.quick else flags.pairs
    parts = {
        "loop": Part(f"{count} pairs in turn", lambda: loop(count, quick=flags.quick)),
        "divergence": Part(
            f"{count * TURNS} pairs of turns of the same process", lambda: diverging.rows(count * TURNS)
        ),
        "library": Part(
            f"{count * library.TURNS} pairs of turns of the same process", lambda: library.rows(count * library.TURNS)
        ),
        "launch": Part(f"{count} pairs in turn", lambda: launch(count)),
        "scaling": Part(f"{count} pairs in turn", lambda: scaling(count, quick=flags.quick)),
        "input": Part(f"{count} pairs in turn", lambda: loading.rows(count, quick=flags.quick)),
    }
    chosen = {name: part for name, part in parts.items() if name in (flags.only or [name])}
    table.measure_all(table.TRAINING, chosen, keep=not flags.quick)


if __name__ == "__main__":
    main()
