"""`ddpjob.submit` and the job that it returns, in a program of somebody else, with a real API server and operator."""

import base64
import gc
import importlib
import io
import json
import subprocess
import sys
import threading
import zipfile
from pathlib import Path

import ddpjob
import psutil
import pytest

from docs.generator.library import public_names
from tests.plant import Plant
from tests.support.helm import user_role
from tests.support.jobs import FOR_LONG, Team, a_job, steered
from tests.support.waiting import patience, wait_for

EXAMPLES = [
    example
    for name in public_names()
    if ddpjob.HOMES.get(name.name, "").startswith(ddpjob.SDK)
    for example in name.examples
    if ".logs(" not in example
    and "ddpjob.run(" not in example  # tests/local/test_functions.py runs it.
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
    role, user = user_role("ddpjob-edit"), f"sdk-{team.namespace}"
    fake.api.apply(role, team.namespace)
    team.kubectl("create", "rolebinding", user, "--clusterrole=ddpjob-edit", f"--user={user}")
    kubeconfig = fake.kubeconfig_for(user)
    fake.kubectl("config", "set-context", "--current", "--namespace", team.namespace, kubeconfig=kubeconfig)
    for name, value in fake.environment(kubeconfig).items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "mymodel", raising=False)
    Path("train.py").write_text("print(1)\n", encoding="utf-8")
    Path("mymodel.py").write_text("def train(lr):\n    return lr\n", encoding="utf-8")
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
        a_job("fails", nodes=1, annotations=FAILS, restart={"maxRestarts": 0}),
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


def test_a_job_whose_block_is_left_by_an_exception_ends_and_keeps_its_pods(mine: Team) -> None:
    mine.apply(a_job("runs", nodes=2, annotations=FOR_LONG))
    mine.wait("Running", "runs")
    with pytest.raises(KeyboardInterrupt) as raised, ddpjob.connect("runs") as job:
        raise KeyboardInterrupt
    assert raised.value.__notes__ == ["runs was cancelled because of this"]
    status = job.wait(patience(60), quiet=True)
    assert (status.state, status.reason, status.incidents) == ("Failed", "Cancelled", ())
    assert len(mine.pods("runs")) == 2
    with pytest.raises(ddpjob.JobFailed, match="runs has failed: The job was cancelled"):
        job.result()
    mine.kubectl("patch", "ddp/runs", "--type=merge", "--patch", '{"spec": {"cancel": false, "suspend": false}}')
    assert mine.wait("Failed", "runs")["reason"] == "Cancelled"


def test_a_running_job_gets_new_code_from_python_with_new_pods_and_without_them_only_with_the_right_to_exec(
    mine: Team,
) -> None:
    """No program runs in these pods, so that what follows an exec is left to tests/e2e/test_in_place.py."""
    ddpjob.submit("train.py", nodes=2, name="first", image="nothing", quiet=True)
    template = (mine.job("first") or {})["spec"]["template"]
    mine.apply(a_job("runs", template=template | {"metadata": {"annotations": FOR_LONG}}))
    mine.wait("Running", "runs")
    before, pods = mine.job("runs") or {}, {pod["metadata"]["uid"] for pod in mine.pods("runs")}
    Path("train.py").write_text("print(2)\n", encoding="utf-8")
    with pytest.raises(ddpjob.ClusterError, match=r'"pods/exec".*Ask for the ClusterRole ddpjob-debug'):
        ddpjob.submit("train.py", name="runs", quiet=True, replace=True, in_place=True)
    assert (mine.job("runs") or {})["spec"] == before["spec"], "nothing has changed"
    assert {pod["metadata"]["uid"] for pod in mine.pods("runs")} == pods

    job = ddpjob.submit("train.py", nodes=2, name="runs", image="nothing", quiet=True, replace=True)
    status = job.wait("60s", quiet=True)
    assert (status.state, status.restarts, status.incidents) == ("Succeeded", 0, ())
    after = mine.job("runs") or {}
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    old, new = (one["spec"]["template"]["spec"]["volumes"][1]["configMap"]["name"] for one in (before, after))
    assert old != new
    assert not pods & {pod["metadata"]["uid"] for pod in mine.pods("runs")}


@pytest.mark.full("tests/unit/client/test_connections.py waits as often for one job of a cluster that is made up")
def test_a_thousand_jobs_are_submitted_and_waited_for_by_one_process(api: Plant, tmp_path: Path) -> None:
    namespace, script = api.new_namespace(), tmp_path / "train.py"
    script.write_text("print(1)\n", encoding="utf-8")
    for number in range(1001):
        job = ddpjob.submit(
            script, name=f"j{number}", image="any", namespace=namespace, kubeconfig=api.kubeconfig, quiet=True
        )
        with pytest.raises(TimeoutError):
            job.wait(0.02, quiet=True)
        if number == 0:
            before = _left()
    wait_for("all threads and connections to end", lambda: _left() <= before)


def _left() -> tuple[int, int]:
    """How many threads of waits run, and how many files are open."""
    gc.collect()
    return sum(thread.name == "job" for thread in threading.enumerate()), psutil.Process().num_fds()


def test_the_result_of_a_function_outlives_the_pods_that_gave_it(mine: Team) -> None:
    """The nodes of this cluster run no program, so they are told what rank 0's supervisor leaves."""
    left = {"version": 2, "progress": None, "checkpoint": None, "result": {"accuracy": 0.93, "of": "größe"}}
    mine.apply(a_job("gives", annotations=steered(message=json.dumps(left, ensure_ascii=False))))
    assert ddpjob.connect("gives").result("60s") == left["result"]
    mine.kubectl("delete", "pods", "--all", "--wait=true")
    assert ddpjob.connect("gives").result() == left["result"]
    status = ddpjob.connect("gives").status()
    assert (status.result, status.result_place) == ('{"accuracy":0.93,"of":"größe"}', None)


def test_a_function_becomes_a_job_with_the_rights_of_its_user(mine: Team) -> None:
    train = importlib.import_module("mymodel").train
    job = ddpjob.submit(train, {"lr": 0.1}, nodes=2, image="nothing", name="function", quiet=True)
    assert job.result("60s") is None, "no program has run here"
    found = json.loads(mine.kubectl("get", "configmaps", "--selector", "ddpjob.dev/code", "--output", "json"))
    (code,) = found["items"]
    packed = zipfile.ZipFile(io.BytesIO(base64.b64decode(code["binaryData"]["code.zip"])))
    assert {*packed.namelist()} == {"ddpjob_call.py", "ddpjob_arguments.json", "mymodel.py"}
