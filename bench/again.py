"""Measures how soon a changed script finishes its first step on held nodes, beside torchrun there and a new job.

The figures are printed and written into docs/reference/performance.md. Exits with 1 if the target is missed.
"""

import argparse
import hashlib
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from ddpjob_operator.api.words import counted

from bench.start import NODES, nodes_with_operator
from bench.table import PERFORMANCE, Part, Row, measure_all
from tests.e2e.work import LONG, a_training, logs, submitted
from tests.plant import build
from tests.support.jobs import Team

SECONDS = 2
FIRST_PORT = 31_000
"""The port of torchrun's first rendezvous; each round takes the next one."""

SCRIPT = """\
import hashlib, time
from pathlib import Path

import torch
from torch.nn.parallel import DistributedDataParallel

torch.distributed.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(10, 1))
optimizer = torch.optim.Adam(model.parameters())
model(torch.ones(8, 10)).sum().backward()
optimizer.step()
digest = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()
print(f"stepped {digest} {time.time()}\\n", end="", flush=True)
torch.distributed.destroy_process_group()
"""

Way = Callable[[Team, Path, int], str]
"""Runs a script, in the round of this number; returns what its ranks have printed."""


def measure(rounds: int) -> list[Row]:
    """Runs the script in each way, one after the other. The first round warms the caches, and does not count."""
    took: dict[str, list[float]] = {name: [] for name in WAYS}
    with nodes_with_operator() as plant, TemporaryDirectory() as directory:
        team, script = Team(plant), Path(directory) / "train.py"
        team.apply(a_training("dev", {"command": ["ddpjob-supervise", "--hold", "3600"]}, NODES))
        team.wait("Running", "dev", LONG)
        for number in range(rounds + 1):
            for name, way in WAYS.items():
                script.write_text(f"{SCRIPT}# {number} {name}\n", encoding="utf-8")
                took[name].append(_seconds(way, team, script, number))
                print(f"  {took[name][-1]:.2f} s: {name}", flush=True)
    return [_row(name, each[1:]) for name, each in took.items()]


def _seconds(way: Way, team: Team, script: Path, number: int) -> float:
    """From the start of the command to the first step of the last rank."""
    digest, typed = hashlib.sha256(script.read_bytes()).hexdigest(), time.time()
    printed = way(team, script, number)
    stepped = re.findall(rf"stepped {digest} (\S+)", printed)
    assert len(stepped) == NODES, f"each rank tells which script it has run: {printed}"
    return max(map(float, stepped)) - typed


def _row(name: str, seconds: Sequence[float]) -> Row:
    median = statistics.median(seconds)
    told = f"median {median:.2f} s, best {min(seconds):.2f} s, worst {max(seconds):.2f} s of {len(seconds)}"
    if name != RUN_ON:
        return Row(f"{name} → first step", told)
    return Row(f"{name} → first step", told, f"each ≤ {SECONDS} s", max(seconds) <= SECONDS)


def _run_on(team: Team, script: Path, _: int) -> str:
    command = [str(Path(sys.executable).parent / "ddpjob"), "run", "--on", "dev", "-n", team.namespace, str(script)]
    return _printed([subprocess.Popen(command, env=_environment(team), stdout=subprocess.PIPE, text=True)])


def _torchrun(team: Team, script: Path, number: int) -> str:
    """Copies the script into each pod of the hold, and starts torchrun there, by one exec into each."""
    pods = sorted(team.pods("dev"), key=lambda pod: pod["metadata"]["name"])
    leader, port = pods[0]["status"]["podIP"], FIRST_PORT + number
    started = []
    for node, pod in enumerate(pods):
        to = f"--nnodes={NODES} --nproc-per-node=1 --node-rank={node} --master-addr={leader} --master-port={port}"
        run = f"cat > /tmp/again.py && exec python -m torch.distributed.run {to} /tmp/again.py"
        into = ["exec", "-i", "-n", team.namespace, "-c", "trainer", pod["metadata"]["name"]]
        with script.open("rb") as content:
            command = [build.path("kubectl"), *into, "--", "sh", "-c", run]
            started.append(
                subprocess.Popen(command, env=_environment(team), stdin=content, stdout=subprocess.PIPE, text=True)
            )
    return _printed(started)


def _submit(team: Team, script: Path, number: int) -> str:
    name = f"again-{number}"
    submitted(team, script.parent, script.name, "--nodes", str(NODES), "--name", name, "--env", "OMP_NUM_THREADS=1")
    team.wait("Succeeded", name, LONG)
    printed = logs(team, name)
    team.kubectl("delete", "ddpjob", name)
    return printed


def _printed(started: Sequence[subprocess.Popen[str]]) -> str:
    printed = [process.communicate(timeout=LONG)[0] for process in started]
    codes = [process.returncode for process in started]
    assert not any(codes), f"{started[0].args!r} has ended with {codes}: {printed}"
    return "".join(printed)


def _environment(team: Team) -> dict[str, str]:
    return os.environ | team.plant.environment()


RUN_ON = "`ddpjob run --on dev train.py`"
WAYS: dict[str, Way] = {
    RUN_ON: _run_on,
    "`torchrun` by `kubectl exec` in the same pods": _torchrun,
    "`ddpjob submit train.py --nodes 2`": _submit,
}


def main() -> None:
    """Measures, prints and writes the figures. Exits with 1 if the target is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10, help="rounds to measure (default 10)")
    parser.add_argument("--quick", action="store_true", help="one, to see that it works; nothing is kept")
    flags = parser.parse_args()
    rounds = 1 if flags.quick else flags.rounds
    how = f"{counted(rounds, 'round')} after a first one, each way in turn"
    measure_all(PERFORMANCE, {"again": Part(how, lambda: measure(rounds))}, keep=not flags.quick)


if __name__ == "__main__":
    main()
