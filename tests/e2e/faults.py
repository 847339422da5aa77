"""What befalls jobs from outside, and how the cluster is made whole again."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ddpjob_operator.api.contract import Label

from tests.plant import Plant
from tests.plant.machines import Machines
from tests.support.helm import NAMESPACE, RELEASE
from tests.support.jobs import Team


def tolerating(seconds: int) -> list[dict[str, Any]]:
    """Tolerations of pods that are given up so long after their node is."""
    keys = ("unreachable", "not-ready")
    how = {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds}
    return [{"key": f"node.kubernetes.io/{key}", **how} for key in keys]


TOLERANT = tolerating(1)
"""For pods that are to be given up a second after their node is."""


def pod_of(team: Team, rank: int, name: str = "digits") -> dict[str, Any]:
    """The present pod of a rank."""
    pods = [pod for pod in team.pods(name) if pod["metadata"]["labels"][Label.NODE] == str(rank)]
    return max(pods, key=lambda pod: int(pod["metadata"]["labels"][Label.INCARNATION]))


def graces(team: Team, name: str) -> set[int | None]:
    """How long the job's pods may take to stop; None for those that nobody has told to."""
    return {pod["metadata"].get("deletionGracePeriodSeconds") for pod in team.pods(name)}


def evict(team: Team, pod: str) -> None:
    """Asks the API to evict a pod, as whoever drains a node does."""
    metadata = {"name": pod, "namespace": team.namespace}
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata}
    path = f"/api/v1/namespaces/{team.namespace}/pods/{pod}/eviction"
    team.kubectl("create", "--raw", path, "-f", "-", input=json.dumps(eviction))


@contextmanager
def drained(plant: Plant, node: str) -> Iterator[None]:
    """A node that nothing runs on any more, as `kubectl drain` leaves it, nobody being forced."""
    try:
        plant.kubectl("drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=180s")
        yield
    finally:
        plant.kubectl("uncordon", node)
        # Else both of its pods stay on one node, and that may be the one that another test kills.
        _rollout(plant, "restart")
        _operator_again(plant)


def most_of(node: dict[str, Any]) -> dict[str, Any]:
    """Resources of a container beside which no other such one finds room on a node."""
    amount = str(node["status"]["allocatable"]["cpu"])
    millicores = int(amount[:-1]) if amount.endswith("m") else int(amount) * 1000
    return {"requests": {"cpu": f"{int(millicores * 0.6)}m"}}


@contextmanager
def an_intruder(team: Team, spec: dict[str, Any]) -> Iterator[None]:
    """A pod that comes before all jobs, and never runs; then its place is free again."""
    urgent = f"urgent-{team.namespace}"
    kind = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": urgent},
        "value": 1000,
    }
    of_it = {"priorityClassName": urgent, "terminationGracePeriodSeconds": 0}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "intruder"}, "spec": {**spec, **of_it}}
    try:
        team.apply(kind)
        team.apply(pod)
        yield
    finally:
        team.kubectl("delete", "pod", "intruder", "--ignore-not-found")
        team.kubectl("delete", "priorityclass", urgent)


@contextmanager
def all_nodes_again(plant: Machines) -> Iterator[None]:
    """Brings nodes back that were killed."""
    try:
        yield
    finally:
        start_again(plant)


def start_again(plant: Machines) -> None:
    """Starts the nodes that were killed."""
    for node in plant.nodes.values():
        node.start()
    plant.wait("the nodes", lambda: plant.ready_nodes() >= plant.nodes.keys())
    _operator_again(plant)


def _operator_again(plant: Plant) -> None:
    _rollout(plant, "status", "--timeout=120s")


def _rollout(plant: Plant, what: str, *flags: str) -> None:
    plant.kubectl("--namespace", NAMESPACE, "rollout", what, f"deployment/{RELEASE}", *flags)
