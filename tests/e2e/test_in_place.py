"""Restarts in place: pods stay, only one that is lost is replaced, and the job's status tells it like any other."""

import signal
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.plant.machines import Machines
from tests.support.exit_codes import among
from tests.support.jobs import Team, condition, writes
from tests.support.waiting import patience

from .faults import pod_of
from .figures import note
from .noting import SOON, Training
from .processes import operators, rank_of, sandbox_of
from .test_training import RESTRICTED
from .work import CODE_MOUNT, LONG, a_training, ddpjob, ended, logs, logs_of_pods, submitted, with_script

STALL_SECONDS = 5

FAILS_AT_STEP_20 = """
import os, signal, sys, time
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(1, 1000):
    optimizer.zero_grad()
    model(torch.ones(8, 4)).pow(2).mean().backward()
    optimizer.step()
    time.sleep(0.05)
    if step == 20 and dist.get_rank() == 1:
        if os.environ["DDPJOB_ATTEMPT"] == "3":
            os._exit(43)
        os.kill(os.getpid(), signal.SIGKILL)
"""
"""Rank 1 is killed in the first two attempts, and ends with exit code 43 in the third."""


@pytest.fixture(scope="module")
def running(host: Machines) -> Iterator[Training]:
    """One training for all tests here that let it go on."""
    training = Training(Team(host), host.new_folder())
    plenty = {"maxRestarts": 1000, "inPlaceRestarts": 1000, "backoffSeconds": 0}
    training.start(restart=plenty, stallTimeoutSeconds=STALL_SECONDS)
    yield training
    training.team.kubectl("delete", "ddpjob", "digits")


@pytest.fixture
def training(running: Training) -> Training:
    """It, while it runs."""
    running.team.wait("Running", seconds=SOON)
    running.gets_further(running.team.status()["attempt"])
    return running


@pytest.mark.full("test_docs.py: the page watch-progress; tests/cluster/test_progress.py")
def test_the_status_follows_training_and_is_written_every_ten_seconds(host: Machines, training: Training) -> None:
    team = training.team
    seen = [progress_of(team)]
    written, began = writes_of_status(team), time.monotonic()
    for _ in range(2):
        seen.append(host.wait("more progress", lambda: (now := progress_of(team)) != seen[-1] and now, SOON))
    times, seconds = writes_of_status(team) - written, time.monotonic() - began
    assert times <= seconds / 10 + 1, f"{times} writes in {seconds:.0f} s"
    steps, saved = zip(*seen, strict=True)
    assert list(steps) == sorted(set(steps))
    assert saved[-1] > saved[0]
    assert steps[-1] - saved[-1] < 1000, "it saves every second"

    progress, display = (team.status()[part] for part in ("progress", "display"))
    head, row = (line.split() for line in team.kubectl("get", "ddp", "digits").splitlines())
    shown = dict(zip(head, row, strict=True))
    assert (shown["PROGRESS"], shown["ETA"]) == (display["progress"], display["eta"])
    assert progress["samplesPerSecond"] > 0
    assert progress["etaSeconds"] > 0


def test_a_killed_rank_is_started_again_in_its_pod_and_no_pod_is_replaced(training: Training) -> None:
    team, before, pods = training.team, training.team.status(), training.pods()
    events = team.events()["Restarting"]
    killed = time.time()
    rank(training, 1).kill()
    note("rank killed", training.begins(before["attempt"] + 1) - killed)
    assert training.pods() == pods
    status = team.status()
    assert cost(before, status) == (1, 0)
    failure = status["incidents"][0]
    assert (failure["attempt"], failure["node"], failure["cause"]) == (before["attempt"], 1, "Application")
    assert (failure["signal"], failure["message"]) == ("SIGKILL", "killed by SIGKILL")
    assert failure["pod"] == pod_of(team, 1)["metadata"]["name"]
    assert condition(status, "Restarting")["reason"] == "Restarted"
    assert team.events()["Restarting"] == events + 1


@pytest.mark.parametrize(
    "lost",
    [pytest.param(1, marks=pytest.mark.full("the lost node in test_recovery.py; tests/local/test_in_place.py")), 0],
)
def test_only_the_pod_that_is_deleted_is_replaced(lost: int, training: Training) -> None:
    team = training.team
    for _ in range(2):
        before, pods = team.status(), training.pods()
        deleted = time.time()
        team.kubectl("delete", "pod", pod_of(team, lost)["metadata"]["name"], "--wait=false")
        note("pod deleted", training.begins(before["attempt"] + 1) - deleted)
        now = training.pods()
        assert now[1 - lost] == pods[1 - lost], "the other one waits in place"
        assert now[lost] != pods[lost]
        status = team.status()
        assert cost(before, status) == (0, 1)
        assert (status["incidents"][0]["node"], status["incidents"][0]["cause"]) == (lost, "PodDeleted")


def test_a_pod_whose_sandbox_is_killed_costs_no_restart_and_is_replaced_alone(training: Training) -> None:
    team, before = training.team, training.team.status()
    kept, lost = pod_of(team, 0)["metadata"]["uid"], pod_of(team, 1)
    sandbox_of(rank(training, 1)).kill()
    training.begins(before["attempt"] + 1)
    status = team.status()
    assert cost(before, status) == (0, 1), status["incidents"][0]
    failure, node = status["incidents"][0], lost["spec"]["nodeName"]
    assert (failure["pod"], failure["cause"]) == (lost["metadata"]["name"], "NodeLost")
    assert failure["message"] == f"Kubernetes node {node} lost the pod's sandbox while the trainer was running"
    assert pod_of(team, 0)["metadata"]["uid"] == kept, "it waits in place"
    assert pod_of(team, 1)["metadata"]["uid"] != lost["metadata"]["uid"]


def test_a_rank_that_is_stopped_is_named_by_the_status_and_started_again(training: Training) -> None:
    team, before, pods = training.team, training.team.status(), training.pods()
    stopped = time.time()
    rank(training, 1).send_signal(signal.SIGSTOP)
    words = "rank 1 did not enter the collective: it is stopped (state T)"
    with training.told():
        team.plant.wait("the stall to be told", lambda: words in stall_told(team.status(), before["attempt"]), SOON)
    note("rank stopped, named", time.time() - stopped)
    assert time.time() - stopped < patience(STALL_SECONDS + 10)
    note("rank stopped", training.begins(before["attempt"] + 1) - stopped)
    status = team.status()
    assert cost(before, status) == (1, 0)
    failure = status["incidents"][0]
    assert (failure["node"], failure["cause"], failure["message"]) == (1, "Stalled", words)
    assert training.pods() == pods
    assert condition(status, "TrainingStalled")["status"] == "False"


def test_what_is_restarted_while_no_operator_runs_is_counted_once_each(host: Machines, training: Training) -> None:
    before, pods = training.team.status(), training.pods()
    rank(training, 1).kill()
    for process in operators(host).values():
        process.kill()
    training.gets_further(before["attempt"] + 1)
    rank(training, 0).kill()
    training.begins(before["attempt"] + 2)
    status = training.team.status()
    assert cost(before, status) == (2, 0)
    told = [(one["attempt"], one["node"]) for one in status["incidents"][:2]]
    assert told == [(before["attempt"] + 1, 0), (before["attempt"], 1)]
    assert training.pods() == pods
    host.wait("the operators to come back", lambda: len(operators(host)) == 2)


@pytest.mark.full("tests/training/test_in_place.py; tests/cluster/test_rules.py")
def test_after_the_last_restart_in_place_all_pods_are_new_and_a_rule_ends_the_job(team: Team) -> None:
    """The supervisors leave to the operator what is its to decide."""
    pod = with_script(team, FAILS_AT_STEP_20)
    container = {"command": ["ddpjob-supervise", "/code/train.py"], **CODE_MOUNT}
    restart = {"inPlaceRestarts": 1, "backoffSeconds": 0, "rules": [{"exitCodes": among(43), "action": "Fail"}]}
    team.apply(a_training("limited", container, pod=pod, restart=restart))
    status = ended(team, "limited")
    assert status["state"] == "Failed"
    assert status["bookkeeping"]["incarnations"]["default"] >= 2, "new pods"
    told = [(one["attempt"], one["node"], one["exitCode"], one["action"]) for one in status["incidents"]]
    assert told == [(3, 1, 43, "Fail"), (2, 1, 137, "Restart"), (1, 1, 137, "Restart")], status["incidents"]
    assert status["incidents"][0]["rule"] == "spec.restart.rules[0]"
    assert status["incidents"][1]["pod"] == status["incidents"][2]["pod"] != status["incidents"][0]["pod"]


def progress_of(team: Team) -> tuple[int, int]:
    """The step that the job is at, and the one that is saved."""
    team.plant.wait("a save", lambda: {"progress", "checkpoint"} <= team.status().keys(), SOON)
    status = team.status()
    return status["progress"]["step"], status["checkpoint"]["step"]


def writes_of_status(team: Team) -> int:
    """How often the job's status was written."""
    return writes(team.plant, team.namespace)["patch ddpjobs/status"]


def rank(training: Training, number: int) -> psutil.Process:
    """The process of a rank."""
    return rank_of((training.team.job() or {})["metadata"]["uid"], number)


def cost(before: dict[str, Any], after: dict[str, Any]) -> tuple[int, int]:
    """Restarts and disruptions that were counted between."""
    return after["restarts"] - before["restarts"], after["disruptions"] - before["disruptions"]


def stall_told(status: dict[str, Any], attempt: int) -> str:
    """What a status says of a stall in an attempt."""
    failure = status.get("incidents", [{}])[0]
    if failure.get("cause") == "Stalled" and failure["attempt"] == attempt:
        return str(failure["message"])
    stalls = (one for one in status["conditions"] if one["type"] == "TrainingStalled")
    return "".join(one["message"] for one in stalls if one["status"] == "True")


WRITTEN = "from pathlib import Path\nprint('word', Path('words.txt').read_text().strip(), flush=True)\n"
STAYS = f"{WRITTEN}import time\ntime.sleep(3600)\n"


def test_a_running_job_takes_new_code_in_the_same_pods_and_new_pods_have_it(host: Machines, tmp_path: Path) -> None:
    team, folder = Team(host, host.new_namespace(**RESTRICTED)), tmp_path / "project"
    folder.mkdir()
    (folder / "train.py").write_text(STAYS)
    words = [str(folder / "train.py"), "--source", str(folder), "--nodes", "2"]
    (folder / "words.txt").write_text("first")
    submitted(team, tmp_path, *words)
    team.wait("Running", "train", LONG)
    host.wait("the first words", partial(all_say, team, "word first"), LONG)
    before = {pod["metadata"]["name"] for pod in team.pods("train")}

    (folder / "words.txt").write_text("second")
    began = time.time()
    said = ddpjob(team, "submit", *words, "--replace", "--in-place")
    note("ddpjob submit --replace --in-place", time.time() - began)
    assert "train: attempt 2 runs the new code " in said
    host.wait("the second words", partial(all_say, team, "word second"), LONG)
    assert {pod["metadata"]["name"] for pod in team.pods("train")} == before
    host.wait("the status to tell it", lambda: team.status("train").get("code", {}).get("attempt") == 2, LONG)
    status = team.status("train")
    assert (status["code"]["revision"], status.get("restarts", 0), status.get("incidents", [])) == (1, 0, [])
    assert "new code" in ddpjob(team, "status", "train")

    first, second = sorted(team.pods("train"), key=lambda pod: str(pod["metadata"]["name"]))
    for lost, others in ((second, 3), (first, 4)):  # Rank 0's last: it meets a supervisor that has the code by exec.
        team.kubectl("delete", "pod", lost["metadata"]["name"])
        host.wait("the next attempt", partial(runs, team, others), LONG)
    host.wait("the second words again", partial(all_say, team, "word second"), LONG)
    assert "word first" not in logs(team, "train"), "no pod runs the former code"
    team.kubectl("delete", "ddpjob", "train")


def all_say(team: Team, words: str) -> bool:
    """Whether both pods have said this in their last attempt; a pod that stays says it again in each."""
    logs = logs_of_pods(team, "train")
    return len(logs) == 2 and all(words in log.rpartition(" begins")[2] for log in logs)


def runs(team: Team, attempt: int) -> bool:
    return bool(team.status("train")["attempt"] >= attempt and team.status("train")["state"] == "Running")
