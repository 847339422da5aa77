"""Measures how soon a submitted script finishes its first step on real nodes, and how long each stage takes.

The figures are printed and written into docs/reference/performance.md. Exits with 1 if the target is missed.
"""

import argparse
import json
import re
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

from ddpjob_operator.api.words import counted

from bench.table import PERFORMANCE, Part, Row, measure_all
from tests.e2e.work import LONG, logs, submitted
from tests.plant import Plant, audit
from tests.plant.images import OPERATOR, TRAINER
from tests.plant.real import start_real
from tests.support.helm import CHART, CLUSTER_CHART, CLUSTER_RELEASE, NAMESPACE, RELEASE, helm, settings
from tests.support.jobs import Team

NODES = 2
SECONDS = 12
SCRIPT = """\
import time

began = time.time()
import json
import os
from pathlib import Path

import torch
from torch.nn.parallel import DistributedDataParallel


def born(pid):
    ticks = float(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + ticks


torch.distributed.init_process_group("gloo")
met = time.time()
model = DistributedDataParallel(torch.nn.Linear(10, 1))
optimizer = torch.optim.Adam(model.parameters())
model(torch.ones(8, 10)).sum().backward()
optimizer.step()
moments = {"code": os.stat(__file__).st_mtime, "born": born(1), "began": began, "met": met, "stepped": time.time()}
print("moments " + json.dumps(moments) + "\\n", end="", flush=True)
"""
"""A script with one model and one step that prints the times of its stages."""

PARTS = (
    "the command, until it asks the API server for the first time",
    "the command, until the job is there",
    "the operator, until all pods are there",
    "the scheduler, until all have a node",
    "the nodes, until the code is unpacked: volumes, network, the init container",
    "the nodes, until the trainer's container has begun",
    "the supervisors, until the script begins: they import torch, and meet",
    "the script, until its ranks have met",
    "the script, until its first step is done",
)
"""Descriptions of the stages between two successive times. A stage ends when the last pod has finished it."""


def measure(rounds: int) -> list[Row]:
    """Runs jobs one after the other. The first job warms the caches, and does not count."""
    with nodes_with_operator() as plant:
        found = [_moments(plant) for _ in range(rounds + 1)][1:]
    totals = [moments[-1] - moments[0] for moments in found]
    median = statistics.median(totals)
    told = f"median {median:.1f} s, best {min(totals):.1f} s, worst {max(totals):.1f} s of {rounds}"
    parts = zip(*([after - before for before, after in pairwise(moments)] for moments in found), strict=True)
    return [
        Row("`ddpjob submit train.py --nodes 2` → first step", told, f"median ≤ {SECONDS} s", median <= SECONDS),
        *(Row(f"of it {what}", f"{statistics.median(each):.2f} s") for what, each in zip(PARTS, parts, strict=True)),
    ]


@contextmanager
def nodes_with_operator() -> Iterator[Plant]:
    """NODES real nodes, and an operator on them that knows the trainer's image."""
    with start_real(nodes=NODES, images=(OPERATOR, TRAINER)) as plant:
        words = ["--namespace", NAMESPACE, "--create-namespace", "--wait"]
        helm("install", CLUSTER_RELEASE, CLUSTER_CHART, *words, plant=plant)
        helm("install", RELEASE, CHART, *words, *settings([f"trainerImage={TRAINER}"]), plant=plant)
        yield plant


def _moments(plant: Plant) -> list[float]:
    """When the command was started, and when each stage ended, in seconds since the epoch, on one machine's clock."""
    team, since = Team(plant), audit.position(plant)
    with tempfile.TemporaryDirectory() as directory:
        (Path(directory) / "train.py").write_text(SCRIPT, encoding="utf-8")
        typed = time.time()
        submitted(team, Path(directory), "train.py", "--nodes", str(NODES), "--env", "OMP_NUM_THREADS=1")
    team.wait("Succeeded", "train", LONG)
    told = [json.loads(line) for line in re.findall(r"^moments (.*)$", logs(team, "train"), re.MULTILINE)]
    assert len(told) == NODES, f"each rank tells: {told}"
    in_pods = [max(one[what] for one in told) for what in ("code", "born", "began", "met", "stepped")]
    moments = [typed, *_at_the_server([*audit.writes(plant, since, team.namespace)]), *in_pods]
    print(f"  {moments[-1] - typed:.1f} s", flush=True)
    return moments


def _at_the_server(writes: Sequence[dict[str, Any]]) -> list[float]:
    """The time of the first request, and when the job, its pods and their bindings were created."""
    first = min(audit.seconds(one["requestReceivedTimestamp"]) for one in writes if _is_the_clients(one))
    made = [
        max(
            audit.seconds(one["stageTimestamp"])
            for one in writes
            if audit.kind(one) == what and one["verb"] == "create" and "dryRun" not in one["requestURI"]
        )
        for what in ("ddpjobs", "pods", "pods/binding")
    ]
    return [first, *made]


def _is_the_clients(event: dict[str, Any]) -> bool:
    return audit.kind(event) in {"ddpjobs", "configmaps"} and event["user"]["username"] == "engineer"


def main() -> None:
    """Measures, prints and writes the figures. Exits with 1 if the target is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="jobs to measure (default 5)")
    parser.add_argument("--quick", action="store_true", help="one, to see that it works; nothing is kept")
    flags = parser.parse_args()
    rounds = 1 if flags.quick else flags.rounds
    part = Part(f"{counted(rounds, 'job')} after a first one, images present", lambda: measure(rounds))
    measure_all(PERFORMANCE, {"start": part}, keep=not flags.quick)


if __name__ == "__main__":
    main()
