"""Kubernetes objects as the engine sees them: typed, and no more of them than decisions need."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ddpjob_operator.api.contract import TRAINER_CONTAINER, Label
from ddpjob_operator.engine import WAIT_CONTAINER, Exit, Manifest, Pod


@dataclass(frozen=True, slots=True)
class Ref:
    """Which object it is, and how new what we know of it is."""

    namespace: str
    name: str
    uid: str
    version: int
    """Its resource version. Those of one resource can be compared: KEP-5504 promises it from Kubernetes 1.35 on, and
    etcd has made it so before."""


def ref_of(manifest: Manifest) -> Ref:
    """The identity of an object that the API server returned."""
    metadata = manifest["metadata"]
    return Ref(metadata["namespace"], metadata["name"], metadata["uid"], int(metadata["resourceVersion"]))


def owner_of(manifest: Manifest) -> str | None:
    """The uid of the object that controls this one."""
    owners = manifest["metadata"].get("ownerReferences", ())
    return next((owner["uid"] for owner in owners if owner.get("controller")), None)


def job_name_of(manifest: Manifest) -> str | None:
    """The job that an object belongs to by its label."""
    name: str | None = manifest["metadata"].get("labels", {}).get(Label.JOB_NAME)
    return name


def pod_of(manifest: Manifest) -> Pod | None:
    """The pod, or None where it is not a pod of a job: its labels may be anybody's, its owner reference is not."""
    labels = manifest["metadata"].get("labels", {})
    rank, incarnation = labels.get(Label.RANK, ""), labels.get(Label.INCARNATION, "")
    if owner_of(manifest) != labels.get(Label.JOB_UID) or not (rank.isdecimal() and incarnation.isdecimal()):
        return None
    status = manifest.get("status", {})
    trainer = _container(status.get("containerStatuses"))
    state = trainer.get("state", {})
    ended = _exit(status, state)
    deleted_at = manifest["metadata"].get("deletionTimestamp")
    return Pod(
        name=manifest["metadata"]["name"],
        uid=manifest["metadata"]["uid"],
        rank=int(rank),
        incarnation=int(incarnation),
        running="running" in state and ended is None,
        exit=ended,
        deleting=deleted_at is not None,
        node=manifest["spec"].get("nodeName"),
        waiting="" if ended else _waiting(status, state),
        gone_by=_time(deleted_at),
        lingering=ended is not None and any("running" in one["state"] for one in status.get("containerStatuses", ())),
    )


def _exit(status: Manifest, state: Manifest) -> Exit | None:
    """How the trainer ended; a pod that failed around it (evicted, its node gone, an init container) has no code."""
    ended = state.get("terminated")
    if ended is not None:
        return Exit(
            code=ended.get("exitCode"),
            reason=ended.get("reason", ""),
            message=ended.get("message", ""),
            finished_at=_time(ended.get("finishedAt")),
        )
    if status.get("phase") != "Failed":
        return None
    init = _failed_init(status)
    if init is None:
        return Exit(code=None, reason=status.get("reason", ""), message=status.get("message", ""))
    ended = init["state"]["terminated"]
    words = ended.get("message") or f"exit code {ended['exitCode']}"
    is_report = init["name"] == WAIT_CONTAINER and words.startswith("{")
    return Exit(
        code=None,
        reason="InitContainerFailed",
        message=words if is_report else f"init container {init['name']}: {words}",
        finished_at=_time(ended.get("finishedAt")),
    )


def _waiting(status: Manifest, state: Manifest) -> str:
    """Why the trainer does not run yet, where somebody says so."""
    for condition in status.get("conditions", ()):
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return _told(condition)
    statuses = [*status.get("initContainerStatuses", ()), {"state": state}]
    for container in statuses:
        waiting = container.get("state", {}).get("waiting")
        if waiting and waiting.get("reason") not in {None, "PodInitializing", "ContainerCreating"}:
            return _told(waiting)
    inits = (init["name"] for init in status.get("initContainerStatuses", ()) if "running" in init.get("state", {}))
    running = next(inits, None)
    if running is None:
        return ""
    return "waiting for the master's port" if running == WAIT_CONTAINER else f"init container {running} runs"


def _told(said: Manifest) -> str:
    return ": ".join(part for part in (said.get("reason"), said.get("message")) if part)


def _failed_init(status: Manifest) -> Manifest | None:
    for container in status.get("initContainerStatuses", ()):
        ended = container.get("state", {}).get("terminated")
        if ended and ended.get("exitCode") != 0:
            found: Manifest = container
            return found
    return None


def _container(statuses: Any) -> Manifest:
    return next((status for status in statuses or () if status["name"] == TRAINER_CONTAINER), {})


def _time(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None
