"""Queues of Kueue for tests, with quota for eight pods of one GPU each."""

from typing import Any

from ddpjob_operator.engine import KUEUE_API

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


def cluster_queue(**spec: Any) -> dict[str, Any]:
    """The one that all queues of the tests belong to."""
    flavors = [{"name": "plain", "resources": [{"name": GPU, "nominalQuota": QUOTA}]}]
    groups = [{"coveredResources": [GPU], "flavors": flavors}]
    preemption = {"withinClusterQueue": "LowerPriority"}
    own = {"namespaceSelector": {}, "resourceGroups": groups, "preemption": preemption}
    return of_kueue("ClusterQueue", CLUSTER_QUEUE, own | spec)


def workloads(team: Team) -> list[dict[str, Any]]:
    """Kueue's Workloads of the namespace."""
    items: list[dict[str, Any]] = team.plant.get(f"/apis/{KUEUE_API}/namespaces/{team.namespace}/workloads")["items"]
    return items


def workload(team: Team, name: str = "digits") -> dict[str, Any]:
    """The job's."""
    (one,) = (one for one in workloads(team) if one["metadata"]["ownerReferences"][0]["name"] == name)
    return one
