"""Pods as an API server returns them, as little of them as a test needs."""

from typing import Any

import msgspec
from ddpjob_operator.api.contract import MANAGER, Label
from ddpjob_operator.cluster.kube.objects import NodeObject, PodObject

UID = "job-uid"


def a_pod(
    rank: int | str = 0, incarnation: int | str = 1, version: int = 1, owner: str = UID, **status: Any
) -> PodObject:
    """A pod of job `digits`."""
    return read(a_manifest(rank, incarnation, version, owner, **status))


def nobody(_: object) -> None:
    """Takes no notice of marks."""


def read(manifest: dict[str, Any]) -> PodObject:
    """A pod as it comes in."""
    return msgspec.convert(manifest, PodObject)


def a_manifest(
    rank: int | str = 0, incarnation: int | str = 1, version: int = 1, owner: str = UID, **status: Any
) -> dict[str, Any]:
    """The same as an API server sends it."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"digits-{rank}-{incarnation}",
            "namespace": "team",
            "uid": f"pod-{rank}-{incarnation}",
            "resourceVersion": str(version),
            "ownerReferences": [{"uid": owner, "controller": True}],
            "labels": {
                Label.MANAGED_BY: MANAGER,
                Label.JOB_NAME: "digits",
                Label.JOB_UID: UID,
                Label.NODE: str(rank),
                Label.INCARNATION: str(incarnation),
            },
        },
        "spec": {"nodeName": "node-1"},
        "status": {"phase": "Running", **status},
    }


def a_node(*taints: dict[str, str], ready: str | None = "True", message: str = "") -> NodeObject:
    """A node with these taints and this status of its condition Ready; None: that it does not have yet."""
    other = {"type": "MemoryPressure", "status": "False", "reason": "KubeletHasSufficientMemory"}
    said = {"type": "Ready", "status": ready, "reason": "KubeletReady", "message": message}
    node = {
        "metadata": {"name": "node-1"},
        "spec": {"taints": list(taints)} if taints else {},
        "status": {"conditions": [other, said] if ready else [other]},
    }
    return msgspec.convert(node, NodeObject)


def trainer(**state: Any) -> list[dict[str, Any]]:
    """Container statuses with the trainer in this state, beside another container that runs."""
    return [{"name": "proxy", "state": {"running": {}}}, {"name": "trainer", "state": state}]
