"""What breaks, and how training goes on to its end: from its checkpoint, within its budget, on pods old and new."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from tests.plant.images import TRAINER
from tests.plant.machines import Machines
from tests.support.jobs import Team

from .faults import TOLERANT, all_nodes_again, pod_of
from .processes import rank_of
from .work import CODE_MOUNT, LONG, a_training, claimed, ddpjob, logs, with_script

TASK = """
import time

from ddpjob_examples.mlp import MlpTask


class Slow(MlpTask):
    def loss(self, output, target):
        time.sleep(0.02)  # Long enough to be interrupted, and the cores are free for others.
        return super().loss(output, target)
"""
ARGUMENTS = ["--workload=train:Slow", "--epochs=25"]


def kill_a_rank(plant: Machines, team: Team) -> None:
    del plant
    rank_of((team.job() or {})["metadata"]["uid"], 1).kill()


def delete_a_pod(plant: Machines, team: Team) -> None:
    del plant
    team.kubectl("delete", "pod", pod_of(team, 1)["metadata"]["name"], "--wait=false")


def kill_a_node(plant: Machines, team: Team) -> None:
    plant.nodes[pod_of(team, 1)["spec"]["nodeName"]].kill()


@dataclass(frozen=True)
class Fault:
    """What befalls rank 1, what it costs, and which ranks' pods stay."""

    happens: Callable[[Machines, Team], None]
    costs: dict[str, int]
    mode: str
    stay: set[int]


RECREATE = pytest.mark.full("tests/local/test_in_place.py and test_recovery.py")

FAULTS = [
    pytest.param(
        Fault(kill_a_rank, {"restarts": 1, "disruptions": 0}, "InPlace", {0, 1}),
        id="a rank is killed",
        marks=pytest.mark.full("test_in_place.py; tests/local/test_training.py, to the last bit"),
    ),
    pytest.param(
        Fault(kill_a_rank, {"restarts": 1, "disruptions": 0}, "Recreate", set()),
        id="a rank is killed and pods are to be new",
        marks=RECREATE,
    ),
    pytest.param(
        Fault(delete_a_pod, {"restarts": 0, "disruptions": 1}, "Recreate", set()),
        id="a pod is deleted by hand and all are to be new",
        marks=RECREATE,
    ),
    pytest.param(Fault(kill_a_node, {"restarts": 0, "disruptions": 1}, "InPlace", {0}), id="a node is lost"),
]


@pytest.mark.parametrize("fault", FAULTS)
def test_training_goes_on_from_its_checkpoint_when(fault: Fault, host: Machines, team: Team) -> None:
    claimed(team, "kept", host.new_folder())
    team.apply(_a_long_training(team, fault.mode))
    team.wait("Running", seconds=LONG)
    # Of a gang that the operator has not heard yet, it cannot know that the others would wait: all pods would be new.
    host.wait("the operator to hear of it", lambda: "progress" in team.status(), LONG)
    host.wait("a checkpoint", lambda: "saved step=" in logs(team, "digits"), LONG)
    before = _pods(team)
    with all_nodes_again(host):
        fault.happens(host, team)
        team.until("{.status.attempt}=2", seconds=LONG)
        status = team.wait("Succeeded", seconds=LONG)
        assert {name: status[name] for name in fault.costs} == fault.costs, status["incidents"][0]
        now = _pods(team)
        assert {rank for rank, pod in before.items() if now[rank] == pod} == fault.stay
        said = logs(team, "digits")
        assert "resumed step=" in said
        assert "finished step=" in said
    _is_kept(team, fault)


def _is_kept(team: Team, fault: Fault) -> None:
    """What the job has printed, and why its second attempt began, can be read when nothing of the job exists."""
    assert re.search(r"^History: +pvc://kept/history$", ddpjob(team, "status", "digits"), re.MULTILINE)
    read = ("--history", "pvc://kept/history")
    assert "finished step=" in ddpjob(team, "logs", "digits", *read), "by a pod of the job's image"
    incident = team.status()["incidents"][0]
    team.kubectl("delete", "ddpjob", "digits")
    read = (*read, "--reader-image", TRAINER)
    told = ddpjob(team, "status", "digits", *read)
    assert f": {incident['cause']}: {incident['message']}" in told, told
    assert (incident["cause"] == "NodeLost") == (fault.happens is kill_a_node)
    assert "saved step=" in ddpjob(team, "logs", "digits", "--attempt", "1", *read)
    assert team.all("pods", "app.kubernetes.io/name=ddpjob-history-reader") == [], "they are gone"


def _pods(team: Team) -> dict[int, str]:
    """The name of each rank's present pod."""
    return {rank: pod_of(team, rank)["metadata"]["name"] for rank in (0, 1)}


def _a_long_training(team: Team, mode: str) -> dict[str, Any]:
    volume = {"persistentVolumeClaim": {"claimName": "kept"}}
    return a_training(
        "digits",
        {"command": ["ddpjob-train"], "args": ARGUMENTS, "workingDir": "/code", **CODE_MOUNT},
        checkpoint={"path": "/checkpoints", "everySteps": 20, "volume": volume},
        restart={"mode": mode},
        pod={**with_script(team, TASK), "tolerations": TOLERANT},
    )
