"""Reads Kueue's flavors and priority classes, and builds the patches that change a Kueue Workload."""

import time
from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any

from ddpjob_operator.engine import Flavor, Manifest, Resize, Tell

from .kube.api_client import FLAVORS, KUEUE_PRIORITIES, POD_PRIORITIES, ApiClient, ApiError

KEPT_SECONDS = 10.0
"""How long a flavor is reused after it was read. All pods of a gang are created together, and flavors rarely
change."""


class Flavors:
    """Kueue's ResourceFlavors, the kinds of Kubernetes nodes that queues give quota for.

    They are read when pods are created, because a watch would be more expensive.
    """

    def __init__(self, api: ApiClient) -> None:
        self._api = api
        self._known: dict[str, tuple[float, Flavor]] = {}

    async def read(self, names: Collection[str]) -> dict[str, Flavor]:
        """Returns the flavors with these names. If a flavor does not exist or cannot be read, its `problem` is set.

        Raises:
            ApiError: the API server does not answer, or cannot handle requests now.
        """
        return {name: await self._flavor(name) for name in names}

    async def _flavor(self, name: str) -> Flavor:
        at, known = self._known.get(name, (-KEPT_SECONDS, Flavor()))
        if time.monotonic() - at < KEPT_SECONDS:
            return known
        try:
            answer = await self._api.get(FLAVORS, None, name)
        except ApiError as error:
            if error.passing:
                raise
            return Flavor(
                problem=f"Cannot read ResourceFlavor {name}, which the queue assigned to the job: {error.message}"
            )
        if answer is None:
            return Flavor(problem=f"ResourceFlavor {name}, which the queue assigned to the job, does not exist")
        flavor = Flavor(answer.spec.node_labels, answer.spec.tolerations)
        self._known[name] = time.monotonic(), flavor
        return flavor


async def with_priority(api: ApiClient, workload: Manifest) -> Manifest:
    """Adds to a Workload the value of its priority class, because Kueue expects the creator to look up that value.

    Raises:
        ApiError: the priority class cannot be read, or does not exist.
    """
    class_ref = workload["spec"].get("priorityClassRef")
    if class_ref is None:
        return workload
    kind = KUEUE_PRIORITIES if class_ref["kind"] == "WorkloadPriorityClass" else POD_PRIORITIES
    priority_class = await api.get(kind, None, class_ref["name"])
    if priority_class is None:
        raise ApiError(
            404, "NotFound", f"{class_ref['kind']} {class_ref['name']} does not exist: create it, or name another"
        )
    return workload | {"spec": workload["spec"] | {"priority": priority_class.value}}


def patch_for(there: Mapping[str, Any], change: Resize | Tell, now: datetime) -> tuple[str, list[Manifest]]:
    """Returns the suffix of the path to patch (`/status` or nothing), and the JSON patch for a Workload."""
    if isinstance(change, Tell):
        status = _changed_status(there.get("status", {}), change, there["metadata"].get("generation", 1), now)
        return "/status", [{"op": "add", "path": "/status", "value": status}]
    pods, least = "/spec/podSets/0", change.least
    changes: list[Manifest] = [{"op": "add", "path": f"{pods}/count", "value": change.nodes}]
    if least is not None:
        changes.append({"op": "add", "path": f"{pods}/minCount", "value": least})
    elif "minCount" in there["spec"]["podSets"][0]:
        changes.append({"op": "remove", "path": f"{pods}/minCount"})
    return "", changes


def _changed_status(status: Mapping[str, Any], change: Tell, generation: int, now: datetime) -> Manifest:
    """Returns a Workload's status with changed conditions and, if the change releases its quota, without admission.

    A condition whose value stays the same keeps its lastTransitionTime.
    """
    conditions = {condition["type"]: condition for condition in status.get("conditions", ())}
    for kind, value, reason, message in change.conditions:
        before, new_value = conditions.get(kind, {}), "True" if value else "False"
        since = before.get("lastTransitionTime") if before.get("status") == new_value else None
        conditions[kind] = {
            "type": kind,
            "status": new_value,
            "reason": reason,
            "message": message,
            "lastTransitionTime": since or now.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "observedGeneration": generation,
        }
    left = {key: value for key, value in status.items() if not (change.releases and key == "admission")}
    return {**left, "conditions": [*conditions.values()]}
