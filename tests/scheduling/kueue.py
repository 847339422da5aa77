"""What an administrator makes with Kueue, and Workloads as a controller makes them."""

from dataclasses import dataclass
from typing import Any

from tests.plant import Plant
from tests.plant.kueue import API
from tests.support.jobs import condition
from tests.support.waiting import wait_for

GPU = "nvidia.com/gpu"
FLAVOR = "default"


@dataclass(frozen=True)
class Kueue:
    """A plant with Kueue beside it. Objects are made, or changed where they are there."""

    plant: Plant

    def flavor(self, name: str = FLAVOR, **spec: Any) -> None:
        """What nodes are told apart by: `nodeLabels`, `tolerations`."""
        self._apply("ResourceFlavor", name, spec=spec)

    def cluster_queue(self, name: str, gpus: int, flavor: str = FLAVOR, **spec: Any) -> None:
        """A quota of so many GPUs, for all namespaces; what asks for anything else does not fit."""
        resource = {"name": GPU, "nominalQuota": gpus}
        group = {"coveredResources": [GPU], "flavors": [{"name": flavor, "resources": [resource]}]}
        self._apply("ClusterQueue", name, spec={"namespaceSelector": {}, "resourceGroups": [group], **spec})

    def local_queue(self, namespace: str, name: str, cluster_queue: str, **spec: Any) -> None:
        """By which the jobs of a namespace get to a ClusterQueue."""
        self._apply("LocalQueue", name, namespace, spec={"clusterQueue": cluster_queue, **spec})

    def priority_class(self, name: str, value: int) -> None:
        """A priority that jobs name by a label."""
        self._apply("WorkloadPriorityClass", name, value=value)

    def workload(self, namespace: str, name: str, queue: str, pods: int, **spec: Any) -> None:
        """A Workload of so many pods that take all GPUs of a node each."""
        resources = {"requests": {GPU: 8}, "limits": {GPU: 8}}
        container = {"name": "trainer", "image": "nothing", "resources": resources}
        template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
        pod_set = {"name": "main", "count": pods, "template": template}
        self._apply("Workload", name, namespace, spec={"queueName": queue, "podSets": [pod_set], **spec})

    def path(self, namespace: str, name: str) -> str:
        """Where the API has a Workload."""
        return f"/apis/{API}/namespaces/{namespace}/workloads/{name}"

    def status(self, namespace: str, name: str) -> dict[str, Any]:
        """A Workload's status."""
        return dict(self.plant.get(self.path(namespace, name)).get("status", {}))

    def condition(self, namespace: str, name: str, kind: str, status: str = "True") -> dict[str, Any]:
        """Waits until the Workload's condition has this status; returns it as it is then."""
        there = lambda: {one["type"]: one["status"] for one in self.status(namespace, name).get("conditions", ())}  # noqa: E731
        wait_for(f"{kind}={status} of the Workload {name}", lambda: there().get(kind) == status, seconds=60)
        return condition(self.status(namespace, name), kind)

    def _apply(self, kind: str, name: str, namespace: str = "", **fields: Any) -> None:
        document = {"apiVersion": API, "kind": kind, "metadata": {"name": name}, **fields}
        self.plant.api.apply(document, namespace)
