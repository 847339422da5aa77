"""Why a rank fails, as kubelets and container runtimes tell it: by its own doing, or before it could begin."""

from contextlib import ExitStack
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import pytest

from tests.plant.machines import Machines
from tests.plant.registry import Answer, start_registry
from tests.support.jobs import Team, condition

from .work import CODE_MOUNT, a_script, a_training, ddpjob, ended, with_script

FIRST_TIME = """
import os, subprocess, sys, time
hoard = "b'x' * int(4e8)"
if os.environ["DDPJOB_INCARNATION"] == "1":
    if os.environ["RANK"] == "1":
        print("last words", file=sys.stderr)
        {fate}
    time.sleep(3600)
"""
"""In the first attempt rank 1 meets its fate and the others wait; all is well in the second."""

HOARD = "eval(hoard)"
IN_A_CHILD = "sys.exit(f'worker died: {subprocess.run([sys.executable, \"-c\", hoard]).returncode}')"


@dataclass(frozen=True)
class Told:
    """What the status tells of a failure.

    codes  exit codes that a kernel may lead to
    """

    cause: str
    codes: set[int]
    message: str


FATES = [
    pytest.param(HOARD, Told("OutOfMemory", {137}, "killed by SIGKILL"), id="it takes more memory than its limit"),
    pytest.param(
        IN_A_CHILD,
        Told("OutOfMemory", {1, 137}, ""),
        id="a process of it does, and it ends by itself",
        marks=pytest.mark.full("tests/local/test_container.py, tests/training/test_memory.py"),
    ),
    pytest.param(
        "raise ValueError('shard 3')",
        Told("Application", {1}, "ValueError: shard 3"),
        id="it raises an error",
        marks=pytest.mark.full("test_docs.py: the page find-out-why-it-failed"),
    ),
    pytest.param(
        "import ctypes; ctypes.string_at(0)",
        Told("Application", {139}, "killed by SIGSEGV"),
        id="it crashes",
        marks=pytest.mark.full("tests/local/test_container.py"),
    ),
]


@pytest.mark.parametrize(("fate", "told"), FATES)
def test_the_cause_is_told_and_the_gang_starts_again_when(fate: str, told: Told, team: Team) -> None:
    job = a_script(
        "fated", ["python3", "-c", FIRST_TIME.format(fate=fate)], nodes=2, restart={"gracePeriodSeconds": 1}
    )
    job["spec"]["template"]["spec"]["containers"][0]["resources"] = {"limits": {"memory": "128Mi"}}
    team.apply(job)
    status = ended(team, "fated")
    assert (status["state"], status["attempt"], status["restarts"], status["disruptions"]) == ("Succeeded", 2, 1, 0)

    failure = status["incidents"][0]
    assert status["incidents"] == [failure]
    assert (failure["node"], failure["cause"], failure["consequences"]) == (1, told.cause, 0), failure
    assert failure["exitCode"] in told.codes
    assert told.message in failure["message"]

    kept = next(pod for pod in team.pods("fated") if pod["metadata"]["name"] == failure["pod"])
    assert (kept["status"]["phase"], kept["spec"]["nodeName"]) == ("Failed", failure["nodeName"])
    assert "[rank 1] last words\n" in ddpjob(team, "logs", "fated", "--previous")


RAISES = """
import os, time
import torch.distributed as dist
dist.init_process_group("gloo")
{before}
if os.environ["RANK"] == "1":
    raise ValueError("shard 3 is empty")
time.sleep(3600)
"""
STEPS_FIRST = "import ddpjob_rank.reporting.report as told; [told.report(step=step) for step in range(1, 101)]"

OTHERS_ARE_ALIKE = pytest.mark.full("the supervisors end all of these in one way, and one shows it")

# What runs under our supervisors -> the script, the command, words of the log, the cause.
SUPERVISED = [
    pytest.param(
        *(RAISES.format(before=""), ["ddpjob-supervise", "/code/train.py"]),
        *("ValueError: shard 3 is empty", "Application"),
        id="a script raises an error at its start",
    ),
    pytest.param(
        *(RAISES.format(before=STEPS_FIRST), ["ddpjob-supervise", "/code/train.py"]),
        *("ValueError: shard 3 is empty", "Application"),
        id="a script raises an error after steps",
        marks=OTHERS_ARE_ALIKE,
    ),
    pytest.param(
        *("", ["ddpjob-train", "--workload", "nonsense"]),
        *("nonsense", "ConfigError"),
        id="its arguments are wrong",
        marks=OTHERS_ARE_ALIKE,
    ),
    pytest.param(
        *("", ["ddpjob-train", "--workload", "mlp"]),
        *("could not be saved", "StorageFull"),
        id="there is no space for a checkpoint",
        marks=OTHERS_ARE_ALIKE,
    ),
]


@pytest.mark.parametrize(("script", "command", "words", "cause"), SUPERVISED)
def test_the_log_of_the_rank_that_failed_first_can_be_read_when(
    script: str, command: list[str], words: str, cause: str, team: Team
) -> None:
    code = with_script(team, script)
    tiny = {
        "path": "/checkpoints",
        "everySteps": 1,
        "volume": {"emptyDir": {"medium": "Memory", "sizeLimit": "64Ki"}},
    }
    container = {"command": command, **CODE_MOUNT}
    team.apply(a_training("evidence", container, restart={"maxRestarts": 0}, checkpoint=tiny, pod=code))
    status = ended(team, "evidence")
    failure = status["incidents"][0]
    assert (status["state"], status["attempt"], failure["cause"]) == ("Failed", 1, cause), failure
    assert status.get("restarts", 0) == 0
    assert failure["pod"] in {pod["metadata"]["name"] for pod in team.pods("evidence")}
    assert words in ddpjob(team, "logs", "evidence", "--node", str(failure["node"]))


def a_broken_job(name: str, container: dict[str, Any]) -> dict[str, Any]:
    """One whose trainer differs in this from one that can start."""
    job = a_script(name, ["sleep", "infinity"], nodes=2)
    job["spec"]["template"]["spec"]["containers"][0].update(container)
    return job


RECORDED = """
import os, time
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record

@record
def main():
    dist.init_process_group("gloo")
    if os.environ["RANK"] == "3":
        raise ValueError("shard 3 is empty")
    time.sleep(3600)

main()
"""


@pytest.mark.full("tests/local/test_runs.py; tests/unit/engine/test_attribution.py: BY_TORCHRUN")
def test_under_torchrun_the_rank_of_the_whole_job_is_named_with_its_node_and_its_exception(team: Team) -> None:
    container = {"command": ["torchrun", "/code/train.py"], **CODE_MOUNT}
    pod = with_script(team, RECORDED)
    job = a_training("elastic", container, procsPerNode=2, pod=pod, restart={"maxRestarts": 0})
    team.apply(job)
    status = ended(team, "elastic")
    failure = status["incidents"][0]
    assert (status["state"], failure["node"], failure["rank"], failure["cause"]) == ("Failed", 1, 3, "Application")
    assert "ValueError: shard 3 is empty" in failure["message"], failure
    assert "Rank 3 (node 1) failed: Application: ValueError: shard 3 is empty" in status["message"]


OTHER_IMAGES = pytest.mark.full("images that are not there, in the registry's words, below")

BROKEN = [
    pytest.param(
        {"command": ["/no/such/program"]}, ("StartError", "/no/such/program"), id="its program does not exist"
    ),
    pytest.param(
        {"image": "registry.example/trainer:1", "imagePullPolicy": "Never"},
        ("ImageError", 'ErrImageNeverPull: Container image "registry.example/trainer:1" is not present'),
        id="its image is not there and may not be pulled",
        marks=OTHER_IMAGES,
    ),
    pytest.param(
        {"image": "Trainer:1:2"},
        ("ImageError", 'InvalidImageName: Failed to apply default image tag "Trainer:1:2"'),
        id="its image has a name that none can have",
        marks=OTHER_IMAGES,
    ),
]


@pytest.mark.parametrize(("container", "told"), BROKEN)
def test_a_job_fails_at_once_when(container: dict[str, Any], told: tuple[str, str], team: Team) -> None:
    team.apply(a_broken_job("broken", container))
    fails_for(team, "broken", *told)


REGISTRIES = {
    "empty": (Answer(HTTPStatus.NOT_FOUND, "MANIFEST_UNKNOWN"), "empty.example/trainer:1: not found"),
    "private": (Answer(HTTPStatus.UNAUTHORIZED, "UNAUTHORIZED"), "401 Unauthorized"),
    "picky": (Answer(HTTPStatus.FORBIDDEN, "DENIED"), "403 Forbidden"),
    "busy": (Answer(HTTPStatus.SERVICE_UNAVAILABLE), "503 Service Unavailable"),
}


def test_a_job_fails_in_its_registry_s_words_but_waits_for_one_that_has_no_time(host: Machines, team: Team) -> None:
    with ExitStack() as stack:
        for name, (answer, _) in REGISTRIES.items():
            stack.enter_context(start_registry(host, f"{name}.example", answer))
            team.apply(a_broken_job(name, {"image": f"{name}.example/trainer:1"}))
        for name in ("empty", "private", "picky"):
            fails_for(team, name, "ImageError", REGISTRIES[name][1])
        waits = "0 of 2 pods running; rank 0 and 1 more: ImagePullBackOff: Back-off pulling image "
        host.wait("it to be asked again", lambda: waits in team.status("busy").get("message", ""))
        status = team.status("busy")
        assert "503 Service Unavailable" in status["message"]
        assert (status["state"], status["attempt"], status["restarts"]) == ("Starting", 1, 0)
        team.kubectl("delete", "ddpjob", "busy")


def fails_for(team: Team, name: str, cause: str, words: str) -> None:
    """The job ends by this cause with these words, without another try."""
    status = ended(team, name)
    assert (status["state"], status["attempt"], status["restarts"]) == ("Failed", 1, 0)
    failure = status["incidents"][0]
    assert (failure["cause"], failure["action"], failure["rule"]) == (cause, "Fail", "default"), failure
    for message in (failure["message"], status["message"], condition(status, "Failed")["message"]):
        assert words in message
    assert condition(status, "Failed")["reason"] == cause
