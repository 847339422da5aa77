"""A held job on real nodes: one version of a script after another trains there, by `ddpjob run --on`."""

import hashlib
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.plant import Plant
from tests.plant.images import PYTHON
from tests.plant.machines import Machines
from tests.support.index import Package, start_index
from tests.support.jobs import Team
from tests.support.terminals import Seen
from tests.support.waiting import patience

from .figures import note
from .work import LONG, a_training, ended, logs_of_pods

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


REPORTS = """
import time, ddpjob
for step in range(1, 1000):
    ddpjob.report(step=step, total=1000, loss=0.5)
    time.sleep(0.1)
"""

TINY = Package("ddpjobtiny", "1.2")


def start(team: Team, script: Path, *options: str) -> subprocess.Popen[str]:
    """Starts the command."""
    return start_ddpjob(team, "run", "--on", "dev", "-n", team.namespace, *options, str(script))


def start_ddpjob(team: Team, *words: str) -> subprocess.Popen[str]:
    command, environment = str(Path(sys.executable).parent / "ddpjob"), os.environ | team.plant.environment()
    return subprocess.Popen(
        [command, *words], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def on_a_terminal(team: Team, script: Path) -> str:
    """What the command draws on a terminal until it shows how far a script is."""
    master, slave = os.openpty()
    environment = os.environ | team.plant.environment() | {"TERM": "xterm-256color", "COLUMNS": "100"}
    command = [str(Path(sys.executable).parent / "ddpjob"), "run", "--on", "dev", "-n", team.namespace, str(script)]
    with subprocess.Popen(command, env=environment, stdout=slave, stderr=slave) as process:
        seen = Seen(master)
        for text in (" elapsed", "%"):
            seen.until(text, LONG)
        process.terminate()
        seen.until("it was interrupted", LONG)
    for end in (master, slave):
        os.close(end)
    return seen.text


def run(team: Team, script: Path, *options: str) -> str:
    """What the command prints."""
    process = start(team, script, *options)
    printed, said = process.communicate(timeout=patience(LONG))
    assert process.returncode == 0, f"{printed}{said}\n{team.status('dev')}"
    return printed


@pytest.mark.full("tests/training/test_hold.py and test_run_on.py, with processes in place of pods")
def test_each_rank_of_a_held_job_runs_the_script_as_it_is_now_within_seconds(host: Machines, tmp_path: Path) -> None:
    real, team, script, took = host, Team(host), tmp_path / "train.py", list[float]()
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
    script.write_text("import ddpjobtiny\nprint('tiny', ddpjobtiny.VERSION, flush=True)\n")
    with start_index(TINY, host=host.address) as index:
        at = ("--env", f"PIP_INDEX_URL={index.url}", "--env", f"PIP_TRUSTED_HOST={host.address}")
        assert run(team, script, *at, "--pip", "ddpjobtiny").count("tiny 1.2\n") == 2
    again = run(team, script, *at, "--pip", "ddpjobtiny")
    assert sorted(again.splitlines()) == ["[rank 0] tiny 1.2", "[rank 1] tiny 1.2"], "it is there, without the index"
    script.write_text(REPORTS)
    assert "held: train.py " in on_a_terminal(team, script)
    process = start_ddpjob(team, "debug", "dev", "--rank", "0", "-n", team.namespace, "--", "nosuch")
    said = process.communicate(timeout=patience(60))[1]
    assert "error: there is no program nosuch in the image of rank 0; name another one after --" in said
    script.write_text(ENDLESS)
    with start(team, script) as process:
        assert process.stdout is not None
        assert "begun" in process.stdout.readline()
        process.kill()
        line = f"attempt {RUNS + 4} has ended"
        real.wait("the ranks to end", lambda: all(line in said for said in logs_of_pods(team, "dev")), LONG)
    assert [pod["metadata"]["uid"] for pod in team.pods("dev")] == before
    assert team.status("dev")["restarts"] == 0
    team.kubectl("delete", "ddpjob", "dev")


@pytest.mark.full("tests/unit/cli/test_run_on.py, with the words of container runtimes")
def test_of_a_hold_whose_image_lacks_our_supervisor_the_command_says_why_it_has_ended(
    real: Plant, tmp_path: Path
) -> None:
    team, script = Team(real), tmp_path / "train.py"
    script.write_text("print()")
    team.apply(a_training("dev", {"image": PYTHON, "command": ["ddpjob-supervise", "--hold", "600"]}, nodes=1))
    assert ended(team, "dev")["state"] == "Failed"
    process = start(team, script)
    said = process.communicate(timeout=patience(60))[1]
    print(said)
    assert process.returncode == 2
    assert "error: dev has ended: " in said
    assert "executable file not found in $PATH" in said
    assert "and hold it again, with an image that has ddpjob-supervise: " in said
    assert said.endswith(f"ddpjob hold dev -n {team.namespace}\n")
