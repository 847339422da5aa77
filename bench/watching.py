"""Measures the cost of watching a job, and how soon the job's status names a rank that hangs."""

import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

from bench.goodput import STALL_SECONDS, STEP_SECONDS
from bench.jobs import ROOT, Job, a_place, start
from bench.notes import DEADLINE_SECONDS, NotGoneOnError
from bench.table import Row
from tests.e2e.figures import FIGURES

NODES = 2
REPORTS = 100_000
MIB = 1 << 20
REPORT_MICROSECONDS, CORE_PERCENT, ZYGOTE_MIB, NAMED_SECONDS = 50, 1.0, 150, STALL_SECONDS + 3
POD_SECONDS, POD_GOAL_SECONDS, SAVE_RATIO = 4, 3, 0.2
POD_DELETED = "pod deleted"
"""The name under which the tests on real nodes store the figure."""


def measure(directory: Path, *, seconds: float, stops: int) -> list[Row]:
    """Measures a job while it trains undisturbed, and then stops its ranks in turn."""
    with a_place(directory) as here:
        # With checkpoints, training makes progress between stops. Without progress the stops would count as a crash
        # loop.
        checkpoint = {"path": "/checkpoints", "everySeconds": 1}
        stall = {"stallTimeoutSeconds": STALL_SECONDS}
        job = start(here, "watched", NODES, step_seconds=STEP_SECONDS, checkpoint=checkpoint, **stall)
        job.notes.others((), job.over)
        job.notes.watch(5)
        found = [report_row(directory), *cpu_rows(job, seconds), memory_row(job)]
        named = [named_after(job, number % NODES) for number in range(stops)]
    told = f"median {statistics.median(named):.1f} s, worst {max(named):.1f} s of {len(named)}"
    met = max(named) <= NAMED_SECONDS
    return [*found, Row("SIGSTOP of a rank → status says Stalled and names it", told, f"≤ {NAMED_SECONDS} s", met)]


def report_row(directory: Path) -> Row:
    """A row with the CPU time of a call that reports a step."""
    script = (
        "import os, sys, time\n"
        "from ddpjob_rank.reporting import heartbeat, report as reporting\n"
        "path = sys.argv[1]\n"
        "open(path, 'wb').write(heartbeat.EMPTY)\n"
        "os.environ['DDPJOB_HEARTBEAT'] = path\n"
        "reporting.report(total=1, samples=64)\n"
        "began = time.process_time()\n"
        f"for step in range({REPORTS}): reporting.report(step=step, loss=0.5)\n"
        "print((time.process_time() - began), reporting._current.record.step)\n"
    )
    words = [sys.executable, "-c", script, str(directory / "heartbeat")]
    seconds, step = subprocess.run(words, check=True, capture_output=True, text=True).stdout.split()
    assert float(step) == REPORTS - 1, "the calls were heard"
    each = float(seconds) / REPORTS * 1e6
    return Row(
        "CPU time of a `report()`", f"{each:.1f} µs", f"≤ {REPORT_MICROSECONDS} µs", each <= REPORT_MICROSECONDS
    )


def families(job: Job) -> dict[int, tuple[psutil.Process, psutil.Process]]:
    """The supervisor and the zygote of each node."""
    zygotes = {step.rank: psutil.Process(step.pid).parent() for step in job.notes.last.values()}
    found = {}
    for rank, supervisor in job.here.trainers(job.name).items():
        zygote = zygotes[rank]
        assert zygote is not None
        assert zygote.ppid() == supervisor.pid, "ranks are forked by a process of the supervisor's"
        found[rank] = supervisor, zygote
    return found


def cpu_rows(job: Job, seconds: float) -> list[Row]:
    """Rows with the CPU time of each node's supervisor and zygote while the rank trains and the status is read."""
    watched = families(job)
    before = {rank: cpu(both) for rank, both in watched.items()}
    began, steps = time.monotonic(), len(job.notes.steps)
    job.notes.watch(seconds)
    passed = time.monotonic() - began
    assert len(job.notes.steps) > steps, "it trains"
    percents = {rank: 100 * (cpu(both) - before[rank]) / passed for rank, both in watched.items()}
    return [
        Row(
            f"CPU of supervisor and zygote while training, node {rank}",
            f"{percent:.2f} % of a core over {passed:.0f} s",
            f"≤ {CORE_PERCENT:.0f} %",
            percent <= CORE_PERCENT,
        )
        for rank, percent in sorted(percents.items())
    ]


def cpu(processes: Sequence[psutil.Process]) -> float:
    """The CPU seconds of the processes, in user and kernel mode."""
    return sum(times.user + times.system for times in (process.cpu_times() for process in processes))


def memory_row(job: Job) -> Row:
    """A row with a zygote's private memory.

    This is what a zygote needs in addition to its rank, which would need the shared pages anyway.
    """
    zygotes = [zygote.pid for _, zygote in families(job).values()]
    own = max(kib("Private_Clean", pid) + kib("Private_Dirty", pid) for pid in zygotes) / 1024
    shares = "/".join(f"{kib('Pss', pid) / 1024:.0f}" for pid in zygotes)
    ranks = "/".join(f"{kib('Pss', step.pid) / 1024:.0f}" for step in job.notes.last.values())
    told = f"{own:.0f} MiB of its own; proportional set sizes: zygotes {shares} MiB, ranks {ranks} MiB"
    return Row("memory of a zygote beyond its rank's", told, f"≤ {ZYGOTE_MIB} MB", own * MIB <= ZYGOTE_MIB * 1e6)


def kib(name: str, pid: int) -> int:
    """The value `name` from a process's smaps_rollup, in KiB."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii")
    return sum(int(value) for value in re.findall(rf"^{name}:\s+(\d+) kB", text, re.MULTILINE))


def named_after(job: Job, rank: int) -> float:
    """Stops a rank, and waits until training continues. Returns the seconds until the status reported the stall."""
    job.notes.watch(5)
    before, attempt = job.notes.pids(), job.status()["attempt"]
    began = time.monotonic()
    os.kill(job.notes.last[rank].pid, signal.SIGSTOP)
    while not _names(job.status(), attempt, rank):
        if job.over() or time.monotonic() > began + DEADLINE_SECONDS:
            raise NotGoneOnError(f"rank {rank} was not named:\n{json.dumps(job.status(), indent=1)}")
        time.sleep(0.02)
    seconds = time.monotonic() - began
    print(f"  rank {rank} stopped, named: {seconds:.2f} s", flush=True)
    job.notes.others(before, job.over)
    return seconds


def _names(status: Mapping[str, Any], attempt: int, rank: int) -> bool:
    """Whether the status's last incident is a stall of this rank, after which the gang restarts immediately."""
    failure = status.get("incidents", [{}])[0]
    return (failure.get("cause"), failure.get("attempt"), failure.get("node")) == ("Stalled", attempt, rank)


def pods() -> list[Row]:
    """The row for a deleted pod, from the last run of the tests on real nodes."""
    what, target = (
        "pod deleted → next finished step, real nodes, image present",
        f"median ≤ {POD_SECONDS} s, goal {POD_GOAL_SECONDS}",
    )
    kept = json.loads(FIGURES.read_text()) if FIGURES.exists() else {"seconds": {}}
    if not (seconds := kept["seconds"].get(POD_DELETED)):
        return [Row(what, "not measured here: `make e2e` does", target)]
    median = statistics.median(seconds)
    told = f"median {median:.1f} s, worst {max(seconds):.1f} s of {len(seconds)}, by `make e2e` of {kept['at']}"
    return [Row(what, told, target, median <= POD_SECONDS)]


def saves(rounds: int) -> list[Row]:
    """The row of the bench of checkpoints, which writes into the directory for temporary files."""
    words = [sys.executable, "-m", "bench.checkpoint", "--rounds", str(rounds)]
    with tempfile.TemporaryDirectory() as directory:
        done = subprocess.run(
            [*words, "--directory", directory], cwd=ROOT, check=False, capture_output=True, text=True
        )
    found = re.search(r"training waits (\d+ ms);.* beside it ([\d.]+ ms), ratio ([\d.]+)", done.stdout)
    if not found:
        sys.exit(f"{' '.join(words)} has ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    waiting, stall, ratio = found.groups()
    told = f"{stall} beside {waiting} when training waits, ratio {ratio}"
    return [Row("stall per save, 100 MB of state", told, f"ratio ≤ {SAVE_RATIO}", float(ratio) <= SAVE_RATIO)]
