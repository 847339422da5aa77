"""What breaks, and how training goes on: as a gang, from its checkpoint, within its budget."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from ddpjob_operator.api.contract import Label

from tests.chart.helm import NAMESPACE, RELEASE
from tests.cluster.jobs import Team
from tests.plant.real import RealPlant

from .processes import rank_of
from .work import LONG, a_training, logs

ARGUMENTS = ["--workload", "convnet", "--data", "digits", "--epochs", "30"]
TOLERANT = [
    {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 1}
    for key in ("unreachable", "not-ready")
]


def kill_a_rank(plant: RealPlant, team: Team) -> None:
    del plant
    rank_of((team.job() or {})["metadata"]["uid"], 1).kill()


def delete_a_pod(plant: RealPlant, team: Team) -> None:
    del plant
    team.kubectl("delete", "pod", _pod(team, "1")["metadata"]["name"], "--wait=false")


def kill_a_node(plant: RealPlant, team: Team) -> None:
    plant.nodes[_pod(team, "1")["spec"]["nodeName"]].kill()


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


@contextmanager
def all_nodes_again(plant: RealPlant) -> Iterator[None]:
    """Brings nodes back that were killed."""
    try:
        yield
    finally:
        for node in plant.nodes.values():
            if not node.is_running:
                node.start()
                node.start_kubelet()
        plant.wait("the nodes", lambda: plant.ready_nodes() == plant.nodes.keys())
        plant.kubectl("--namespace", NAMESPACE, "rollout", "status", f"deployment/{RELEASE}", "--timeout=120s")


def _a_long_training(shared: Path) -> dict[str, Any]:
    shared.chmod(0o777)
    volume = {"hostPath": {"path": str(shared)}}
    return a_training(
        "digits",
        {"args": ARGUMENTS},
        checkpoint={"path": "/checkpoints", "everySteps": 20, "volume": volume},
        pod={"tolerations": TOLERANT},
    )


def _pod(team: Team, rank: str) -> dict[str, Any]:
    return next(pod for pod in team.pods() if pod["metadata"]["labels"][Label.RANK] == rank)
