"""Queues of Kueue for tests. By default their quota is enough for eight pods with one GPU each."""

from typing import Any

from ddpjob_operator.engine import KUEUE_API

from tests.plant import Plant
from tests.support.jobs import Team

QUEUE, CLUSTER_QUEUE = "training", "gpus"
GPU = "nvidia.com/gpu"
QUOTA = 8


def of_kueue(kind: str, name: str, spec: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """An object of Kueue's API."""
    return {
        "apiVersion": KUEUE_API,
        "kind": kind,
        "metadata": {"name": name},
        **({"spec": spec} if spec else {}),
        **more,
    }


def create_cluster_queue(plant: Plant, resource: str = GPU, quota: int | str = QUOTA) -> None:
    """Creates the ClusterQueue to which all queues of the tests belong, and two priority classes."""
    plant.api.apply(of_kueue("ResourceFlavor", "plain", {"nodeLabels": {"kubernetes.io/os": "linux"}}), "")
    plant.api.apply(cluster_queue(resource, quota), "")
    for name, value in (("low", 1), ("high", 1000)):
        plant.api.apply(of_kueue("WorkloadPriorityClass", name, value=value), "")


def cluster_queue(resource: str = GPU, quota: int | str = QUOTA, **spec: Any) -> dict[str, Any]:
    """The document of a ClusterQueue."""
    flavors = [{"name": "plain", "resources": [{"name": resource, "nominalQuota": quota}]}]
    groups = [{"coveredResources": [resource], "flavors": flavors}]
    preemption = {"withinClusterQueue": "LowerPriority"}
    own = {"namespaceSelector": {}, "resourceGroups": groups, "preemption": preemption}
    return of_kueue("ClusterQueue", CLUSTER_QUEUE, own | spec)


def workloads(team: Team) -> list[dict[str, Any]]:
    """Kueue's Workloads in the namespace."""
    items: list[dict[str, Any]] = team.plant.get(f"/apis/{KUEUE_API}/namespaces/{team.namespace}/workloads")["items"]
    return items


def workload(team: Team, name: str = "digits") -> dict[str, Any]:
    """The job's Workload."""
    (one,) = (one for one in workloads(team) if one["metadata"]["ownerReferences"][0]["name"] == name)
    return one
