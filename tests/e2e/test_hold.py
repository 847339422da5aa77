"""A held job on real nodes: one version of a script after another trains there, by `ddpjob run --on`."""

import hashlib
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.plant import Plant
from tests.support.jobs import Team
from tests.support.waiting import patience

from .figures import note
from .work import LONG, a_training, logs_of_pods

RUNS = 5
SCRIPT = """
import hashlib, os, time
from pathlib import Path
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.ones(8, 4)).pow(2).mean().backward()
optimizer.step()
print("digest", hashlib.sha256(Path(__file__).read_bytes()).hexdigest(), time.time(), flush=True)
dist.destroy_process_group()
"""


ENDLESS = "import time\nprint('begun', flush=True)\ntime.sleep(3600)\n"


def start(team: Team, script: Path) -> subprocess.Popen[str]:
    """Starts the command."""
    command = [str(Path(sys.executable).parent / "ddpjob"), "run", "--on", "dev", "-n", team.namespace, str(script)]
    environment = os.environ | team.plant.environment()
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def run(team: Team, script: Path) -> str:
    """What the command prints."""
    process = start(team, script)
    printed, said = process.communicate(timeout=patience(LONG))
    assert process.returncode == 0, f"{printed}{said}\n{team.status('dev')}"
    return printed


@pytest.mark.full("tests/training/test_hold.py and test_run_on.py, with processes in place of pods")
def test_each_rank_of_a_held_job_runs_the_script_as_it_is_now_within_seconds(real: Plant, tmp_path: Path) -> None:
    team, script, took = Team(real), tmp_path / "train.py", list[float]()
    team.apply(a_training("dev", {"command": ["ddpjob-supervise", "--hold", "600"]}))
    team.wait("Running", "dev", seconds=LONG)
    before = [pod["metadata"]["uid"] for pod in team.pods("dev")]
    for number in range(RUNS):
        script.write_text(f"{SCRIPT}# {number}\n")
        began = time.time()
        lines = [line.split() for line in run(team, script).splitlines() if " digest " in line]
        digest = hashlib.sha256(script.read_bytes()).hexdigest()
        assert [words[3] for words in lines] == [digest] * 2
        took.append(max(float(words[4]) for words in lines) - began)
    for seconds in took:
        note("from ddpjob run --on to the first step of all ranks", seconds)
    script.write_text(ENDLESS)
    with start(team, script) as process:
        assert process.stdout is not None
        assert "begun" in process.stdout.readline()
        process.kill()
        ended = f"attempt {RUNS + 1} has ended"
        real.wait("the ranks to end", lambda: all(ended in said for said in logs_of_pods(team, "dev")), LONG)
    assert [pod["metadata"]["uid"] for pod in team.pods("dev")] == before
    assert team.status("dev")["restarts"] == 0
    team.kubectl("delete", "ddpjob", "dev")
