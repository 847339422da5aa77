"""Pods as an API server returns them, as little of them as a test needs."""

from typing import Any

import msgspec
from ddpjob_operator.api.contract import API_VERSION, KIND, MANAGER, Label
from ddpjob_operator.api.ownership import JobRef, name_of_pod
from ddpjob_operator.cluster.kube.objects import NodeObject, PodObject

UID = "job-uid"
DIGITS = JobRef("team", "digits", UID)
"""The job to which all belongs."""


def owned(name: str = "digits", uid: str = UID) -> dict[str, Any]:
    """The reference of what belongs to this job."""
    return {"apiVersion": API_VERSION, "kind": KIND, "name": name, "uid": uid, "controller": True}


def name_of(rank: int | str = 0, incarnation: int | str = 1) -> str:
    """Of a pod of job `digits`; of one with labels that there cannot be, something like it."""
    there_can_be = str(rank).isdecimal() and str(incarnation).isdecimal()
    return name_of_pod(DIGITS, int(rank), int(incarnation)) if there_can_be else f"digits-{rank}-{incarnation}"


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
            "name": name_of(rank, incarnation),
            "namespace": "team",
            "uid": f"pod-{rank}-{incarnation}",
            "resourceVersion": str(version),
            "ownerReferences": [owned(uid=owner)],
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
