"""Pods as an API server returns them, as little of them as a test needs."""

from typing import Any

from ddpjob_operator.api.contract import MANAGER, Label

UID = "job-uid"


def a_pod(rank: int = 0, incarnation: int = 1, version: int = 1, owner: str = UID, **status: Any) -> dict[str, Any]:
    """A pod of job `digits`."""
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
                Label.RANK: str(rank),
                Label.INCARNATION: str(incarnation),
            },
        },
        "spec": {"nodeName": "node-1"},
        "status": {"phase": "Running", **status},
    }


def a_node(*taints: dict[str, str], ready: str | None = "True", message: str = "") -> dict[str, Any]:
    """A node with these taints and this status of its condition Ready; None: that it does not have yet."""
    other = {"type": "MemoryPressure", "status": "False", "reason": "KubeletHasSufficientMemory"}
    said = {"type": "Ready", "status": ready, "reason": "KubeletReady", "message": message}
    return {
        "metadata": {"name": "node-1"},
        "spec": {"taints": list(taints)} if taints else {},
        "status": {"conditions": [other, said] if ready else [other]},
    }


def trainer(**state: Any) -> list[dict[str, Any]]:
    """Container statuses with the trainer in this state, beside another container that runs."""
    return [{"name": "proxy", "state": {"running": {}}}, {"name": "trainer", "state": state}]
