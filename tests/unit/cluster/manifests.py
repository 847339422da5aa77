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


def trainer(**state: Any) -> list[dict[str, Any]]:
    """Container statuses with the trainer in this state, beside another container that runs."""
    return [{"name": "proxy", "state": {"running": {}}}, {"name": "trainer", "state": state}]
