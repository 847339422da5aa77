"""What breaks, and how training goes on: as a gang, from its checkpoint, within its budget."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.jobs import Team
from tests.plant.real import RealPlant

from .faults import TOLERANT, all_nodes_again, pod_of
from .processes import rank_of
from .work import LONG, a_training, logs

ARGUMENTS = ["--workload", "convnet", "--data", "digits", "--epochs", "30"]


def kill_a_rank(plant: RealPlant, team: Team) -> None:
    del plant
    rank_of((team.job() or {})["metadata"]["uid"], 1).kill()


def delete_a_pod(plant: RealPlant, team: Team) -> None:
    del plant
    team.kubectl("delete", "pod", pod_of(team, 1)["metadata"]["name"], "--wait=false")


def kill_a_node(plant: RealPlant, team: Team) -> None:
    plant.nodes[pod_of(team, 1)["spec"]["nodeName"]].kill()


FAULTS: dict[str, tuple[Callable[[RealPlant, Team], None], dict[str, int]]] = {
    "a rank is killed": (kill_a_rank, {"restarts": 1, "disruptions": 0}),
    "a pod is deleted by hand": (delete_a_pod, {"restarts": 0, "disruptions": 1}),
    "a node is lost": (kill_a_node, {"restarts": 0, "disruptions": 1}),
}


@pytest.mark.parametrize(("fault", "costs"), FAULTS.values(), ids=FAULTS)
def test_training_goes_on_from_its_checkpoint_when(
    fault: Callable[[RealPlant, Team], None], costs: dict[str, int], host: RealPlant, team: Team, tmp_path: Path
) -> None:
    team.apply(_a_long_training(tmp_path))
    team.wait("Running", seconds=LONG)
    host.wait("a checkpoint", lambda: "saved step=" in logs(team, "digits"), LONG)
    with all_nodes_again(host):
        fault(host, team)
        team.until("{.status.attempt}=2", seconds=LONG)
        status = team.wait("Succeeded", seconds=LONG)
        assert {name: status[name] for name in costs} == costs, status["lastFailure"]
        said = logs(team, "digits")
        assert "resumed step=" in said
        assert "finished step=" in said


def _a_long_training(shared: Path) -> dict[str, Any]:
    shared.chmod(0o777)
    volume = {"hostPath": {"path": str(shared)}}
    return a_training(
        "digits",
        {"args": ARGUMENTS},
        checkpoint={"path": "/checkpoints", "everySteps": 20, "volume": volume},
        pod={"tolerations": TOLERANT},
    )
