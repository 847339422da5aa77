"""Kubernetes objects as the engine sees them: typed, and no more of them than decisions need."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ddpjob_operator.api.contract import TRAINER_CONTAINER, Label
from ddpjob_operator.engine import WAIT_CONTAINER, WAITING_FOR_MASTER, Disruption, Exit, Manifest, Pod, Waiting

STOPPED_SECONDS = 1
"""A pod with this `activeDeadlineSeconds` is told to stop and to stay: a kubelet ends it and keeps its logs."""

Conditions = dict[str, Manifest]
"""A pod's conditions by their type."""


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
    metadata, spec, status = manifest["metadata"], manifest["spec"], manifest.get("status", {})
    labels = metadata.get("labels", {})
    rank, incarnation = labels.get(Label.RANK, ""), labels.get(Label.INCARNATION, "")
    if owner_of(manifest) != labels.get(Label.JOB_UID) or not (rank.isdecimal() and incarnation.isdecimal()):
        return None
    trainer = _container(status.get("containerStatuses"))
    state = trainer.get("state", {})
    ended = _exit(status, state)
    running = "running" in state and ended is None
    deleted_at = metadata.get("deletionTimestamp")
    conditions = {condition["type"]: condition for condition in status.get("conditions", ())}
    return Pod(
        name=metadata["name"],
        uid=metadata["uid"],
        rank=int(rank),
        incarnation=int(incarnation),
        running=running,
        exit=ended,
        deleting=deleted_at is not None,
        node=spec.get("nodeName"),
        address=status.get("podIP") if running else None,  # Before, it is no news.
        waiting=None if ended else _waiting(status, state, conditions),
        created_at=_time(metadata.get("creationTimestamp")),
        scheduled_at=_scheduled_at(conditions),
        started_at=_time(state.get("running", {}).get("startedAt")),
        reason=status.get("reason", ""),
        message=status.get("message", ""),
        disruption=_disruption(conditions),
        stopped=spec.get("activeDeadlineSeconds") == STOPPED_SECONDS,
        gone_by=_time(deleted_at),
        forced=metadata.get("deletionGracePeriodSeconds") == 0,
        lingering=ended is not None and any("running" in one["state"] for one in status.get("containerStatuses", ())),
    )


def node_problem(manifest: Manifest | None) -> str:
    """What is wrong with a node, in a sentence; empty where nothing is. None: there is no such node any more."""
    if manifest is None:
        return "is gone"
    for condition in manifest.get("status", {}).get("conditions", ()):
        if condition["type"] == "Ready" and condition["status"] != "True":
            return f"is not ready: {condition.get('message') or condition.get('reason', '')}"
    return ""


def _scheduled_at(conditions: Conditions) -> datetime | None:
    scheduled = conditions.get("PodScheduled", {})
    return _time(scheduled.get("lastTransitionTime")) if scheduled.get("status") == "True" else None


def _disruption(conditions: Conditions) -> Disruption | None:
    said = conditions.get("DisruptionTarget", {})
    return Disruption(said.get("reason", ""), said.get("message", "")) if said.get("status") == "True" else None


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


def _waiting(status: Manifest, state: Manifest, conditions: Conditions) -> Waiting | None:
    """Why the trainer does not run yet, where somebody says so."""
    scheduled = conditions.get("PodScheduled", {})
    if scheduled.get("status") == "False":
        return _told(scheduled)
    for container in (*status.get("initContainerStatuses", ()), {"state": state}):
        waiting = container.get("state", {}).get("waiting")
        if waiting and waiting.get("reason") not in {None, "PodInitializing", "ContainerCreating"}:
            return _told(waiting)
    inits = (init["name"] for init in status.get("initContainerStatuses", ()) if "running" in init.get("state", {}))
    running = next(inits, None)
    if running is not None:
        if running == WAIT_CONTAINER:
            return Waiting(WAITING_FOR_MASTER)
        return Waiting(f"init container {running} runs", busy=True)
    sandbox = conditions.get("PodReadyToStartContainers", {})
    return Waiting("waiting for its volumes and network") if sandbox.get("status") == "False" else None


def _told(said: Manifest) -> Waiting:
    return Waiting(said.get("reason", ""), said.get("message", ""))


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
