"""`ddpjob-train` beside the smallest DDP script for the same model and data: steps per second, time to the first.

Both train with two real processes over gloo, in turn, so that what else the machine does falls on both. Exits 1 if
the confidence interval of the ratio lies wholly below the bound.
"""

import argparse
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ddpjob_trainer.workloads.convnet import ConvNetTask

from tests.training.ranks import free_port, world

RANKS = 2
BOUND = 0.99
RESAMPLES = 10_000
CONFIDENCE = 0.95


class Untested(ConvNetTask):
    """The script does not evaluate, so for this comparison the trainer does not either."""

    def test_data(self) -> None:  # type: ignore[override]
        """Nothing is held out."""


@dataclass(frozen=True)
class Measurement:
    """One run: seconds from the start of the processes to the end of the first step, and the pace after it."""

    first_step_seconds: float
    steps_per_second: float


def measure(arguments: Sequence[str]) -> Measurement:
    """Runs a program in every rank and reads the times of rank 0's first and last progress lines."""
    port = free_port()
    began = time.monotonic()
    processes = [
        subprocess.Popen(
            [sys.executable, *arguments],
            env={**os.environ, **world(rank, RANKS, port)},
            stdout=subprocess.PIPE if rank == 0 else subprocess.DEVNULL,
            text=True,
        )
        for rank in range(RANKS)
    ]
    output = processes[0].stdout
    assert output
    seen = [(time.monotonic(), line.split("step=")[1]) for line in output if line.startswith("progress")]
    if any(process.wait() for process in processes):
        sys.exit(f"{' '.join(arguments)} failed")
    (first, _), (last, said) = seen[0], seen[-1]
    steps = int(said.partition("/")[0])
    return Measurement(first - began, (steps - 1) / (last - first))


def interval(values: Sequence[float]) -> tuple[float, float]:
    """A bootstrap confidence interval of the median (percentile method)."""
    draw = random.Random(0)  # The same data, the same interval.
    medians = sorted(statistics.median(draw.choices(values, k=len(values))) for _ in range(RESAMPLES))
    tail = (1 - CONFIDENCE) / 2
    return medians[int(tail * RESAMPLES)], medians[int((1 - tail) * RESAMPLES) - 1]


def main() -> None:
    """Measures, prints, and judges."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--epochs", type=int, default=40)
    flags = parser.parse_args()
    epochs = str(flags.epochs)
    ours_is = [
        "-m",
        "ddpjob_trainer",
        "--workload",
        "tests.bench.train:Untested",
        "--epochs",
        epochs,
        "--threads",
        "1",
    ]
    script_is = ["-m", "tests.bench.smallest_ddp", epochs]
    os.chdir(Path(__file__).parents[2])
    pairs: list[tuple[Measurement, Measurement]] = []
    for pair in range(flags.pairs):
        # Who goes first changes too.
        order = [ours_is, script_is] if pair % 2 else [script_is, ours_is]
        measured = [measure(arguments) for arguments in order]
        ours, script = measured if pair % 2 else reversed(measured)
        pairs.append((ours, script))
        print(
            f"pair {pair + 1}: ddpjob-train {ours.steps_per_second:.1f}, script {script.steps_per_second:.1f} steps/s"
        )
    sys.exit(judge(pairs))


def judge(pairs: Sequence[tuple[Measurement, Measurement]]) -> int:
    """Prints the comparison and gives the exit code."""
    for name, unit in (("steps_per_second", "steps/s"), ("first_step_seconds", "s from start to first step")):
        ours, script = (statistics.median(getattr(pair[side], name) for pair in pairs) for side in (0, 1))
        print(f"medians: ddpjob-train {ours:.1f}, script {script:.1f} {unit}")
    ratios = [ours.steps_per_second / script.steps_per_second for ours, script in pairs]
    low, high = interval(ratios)
    print(
        f"ratio of steps/s: median {statistics.median(ratios):.3f},"
        f" {CONFIDENCE:.0%} confidence interval {low:.3f} to {high:.3f} (bound {BOUND})"
    )
    return int(high < BOUND)


if __name__ == "__main__":
    main()
