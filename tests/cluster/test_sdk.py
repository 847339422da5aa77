"""`ddpjob.submit` and the job that it returns, in a program of somebody else, with a real API server and operator."""

import subprocess
import sys
from pathlib import Path

import ddpjob
import pytest

from docs.generator.library import public_names
from tests.plant import Plant
from tests.support.helm import named, render
from tests.support.jobs import FOR_LONG, Team, a_job, steered
from tests.support.waiting import patience

EXAMPLES = [
    example
    for name in public_names()
    if ddpjob.HOMES.get(name.name, "").startswith(ddpjob.SDK)
    for example in name.examples
    if ".logs(" not in example
    and ".wait(" not in example  # The nodes of this cluster have no logs: the unit tests run these examples.
]
FAILS = steered(exit_code="1")
CHANGES = ("suspend", "resume", "scale", "cancel", "delete")
PROGRAM = """
import sys
import time
import ddpjob

assert "ddpjob_operator" not in sys.modules
job = ddpjob.submit("train.py", args=["--lr", 0.1], nodes=2, name="mine", image="nothing")
print("state", job.wait("60s", quiet=True).state)
while "Complete" not in {event.reason for event in job.events()}:
    time.sleep(0.1)
job.delete()
try:
    ddpjob.connect("mine")
except ddpjob.BadInputError as error:
    print("error", error)
"""


@pytest.fixture
def mine(fake: Plant, team: Team, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Team:
    """A namespace in which the user of the kubeconfig may run DDPJobs and do nothing else."""
    role, user = named(render())["ClusterRole", "ddpjob-edit"], f"sdk-{team.namespace}"
    fake.api.apply(role, team.namespace)
    team.kubectl("create", "rolebinding", user, "--clusterrole=ddpjob-edit", f"--user={user}")
    kubeconfig = fake.kubeconfig_for(user)
    fake.kubectl("config", "set-context", "--current", "--namespace", team.namespace, kubeconfig=kubeconfig)
    for name, value in fake.environment(kubeconfig).items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text("print(1)\n", encoding="utf-8")
    return team


def test_a_program_in_another_directory_runs_a_job_with_the_rights_of_its_user(mine: Team) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], check=False, capture_output=True, text=True, timeout=patience(120)
    )
    assert done.returncode == 0, done.stderr
    assert "state Succeeded\n" in done.stdout, done.stdout
    assert f"no DDPJob mine in namespace {mine.namespace}" in done.stdout


def test_the_examples_of_the_reference_run(mine: Team, capsys: pytest.CaptureFixture[str]) -> None:
    mine.apply(
        a_job("resnet"),
        a_job("runs", annotations=FOR_LONG),
        a_job("fails", annotations=FAILS, restart={"maxRestarts": 0}),
    )
    mine.wait("Succeeded", "resnet")
    mine.wait("Running", "runs")
    mine.wait("Failed", "fails")
    for example in EXAMPLES:
        changes = any(f"job.{change}(" in example for change in CHANGES)
        name = "runs" if changes else "fails" if "Failed" in example else "resnet"
        exec(example, {"ddpjob": ddpjob, "job": ddpjob.connect(name)})
    printed = capsys.readouterr().out
    assert "0 None" in printed, printed
