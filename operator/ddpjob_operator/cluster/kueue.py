"""What only Kueue knows: what its flavors and priority classes are, and how the status of a Workload is changed."""

import time
from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any

from ddpjob_operator.engine import Flavor, Manifest, Resize, Tell

from .kube.api_client import FLAVORS, KUEUE_PRIORITIES, POD_PRIORITIES, ApiClient, ApiError

KEPT_SECONDS = 10.0
"""How long a flavor is taken to be as it was: the pods of a gang are created in one go, and flavors rarely change."""


class Flavors:
    """The kinds of Kubernetes nodes that queues hand out, read when pods are created: each would need a watch."""

    def __init__(self, api: ApiClient) -> None:
        self._api = api
        self._known: dict[str, tuple[float, Flavor]] = {}

    async def read(self, names: Collection[str]) -> dict[str, Flavor]:
        """Each of these, or what is the matter with it.

        Raises:
            ApiError: that cannot be determined now.
        """
        return {name: await self._one(name) for name in names}

    async def _one(self, name: str) -> Flavor:
        at, known = self._known.get(name, (-KEPT_SECONDS, Flavor()))
        if time.monotonic() - at < KEPT_SECONDS:
            return known
        try:
            seen = await self._api.get(FLAVORS, None, name)
        except ApiError as error:
            if error.passing:
                raise
            return Flavor(problem=f"ResourceFlavor {name}, with which the queue admitted the job: {error.message}")
        if seen is None:
            return Flavor(problem=f"ResourceFlavor {name}, with which the queue admitted the job, does not exist")
        flavor = Flavor(seen.spec.node_labels, seen.spec.tolerations)
        self._known[name] = time.monotonic(), flavor
        return flavor


async def with_priority(api: ApiClient, workload: Manifest) -> Manifest:
    """The Workload with the value of its priority class: Kueue leaves it to who makes the Workload to look it up.

    Raises:
        ApiError: it cannot be read, or does not exist.
    """
    wanted = workload["spec"].get("priorityClassRef")
    if wanted is None:
        return workload
    kind = KUEUE_PRIORITIES if wanted["kind"] == "WorkloadPriorityClass" else POD_PRIORITIES
    found = await api.get(kind, None, wanted["name"])
    if found is None:
        raise ApiError(
            404, "NotFound", f"{wanted['kind']} {wanted['name']} does not exist: create it, or name another"
        )
    return workload | {"spec": workload["spec"] | {"priority": found.value}}


def changed(there: Mapping[str, Any], change: Resize | Tell, now: datetime) -> tuple[str, list[Manifest]]:
    """Which part of a Workload is changed, as the end of its path, and how, as a JSON patch has it."""
    if isinstance(change, Tell):
        status = told(there.get("status", {}), change, there["metadata"].get("generation", 1), now)
        return "/status", [{"op": "add", "path": "/status", "value": status}]
    pods, least = "/spec/podSets/0", change.least
    changes: list[Manifest] = [{"op": "add", "path": f"{pods}/count", "value": change.nodes}]
    if least is not None:
        changes.append({"op": "add", "path": f"{pods}/minCount", "value": least})
    elif "minCount" in there["spec"]["podSets"][0]:
        changes.append({"op": "remove", "path": f"{pods}/minCount"})
    return "", changes


def told(status: Mapping[str, Any], change: Tell, generation: int, now: datetime) -> Manifest:
    """The status of a Workload with this change."""
    conditions = {one["type"]: one for one in status.get("conditions", ())}
    for kind, value, reason, message in change.conditions:
        said, word = conditions.get(kind, {}), "True" if value else "False"
        since = said.get("lastTransitionTime") if said.get("status") == word else None
        conditions[kind] = {
            "type": kind,
            "status": word,
            "reason": reason,
            "message": message,
            "lastTransitionTime": since or now.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "observedGeneration": generation,
        }
    left = {key: value for key, value in status.items() if not (change.releases and key == "admission")}
    return {**left, "conditions": [*conditions.values()]}
