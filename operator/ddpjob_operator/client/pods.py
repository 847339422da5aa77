"""The fields of a job's pods that the command and the client need."""

import json
from collections.abc import Iterable
from dataclasses import dataclass

from ddpjob_operator.api import DDPJobStatus, ownership
from ddpjob_operator.api.contract import TRAINER_CONTAINER, Env, Label
from ddpjob_operator.api.ownership import Controller, JobRef

from .cluster import Document

INSTALL_CONTAINER = "install-packages"
"""The container that installs packages before the trainer starts. Its log is shown before the trainer's."""


@dataclass(frozen=True, slots=True)
class JobPod:
    """A pod of a job."""

    name: str
    namespace: str
    uid: str
    node: int
    """The node's number."""
    incarnation: int
    attempt: int
    """The attempt for which the pod was created. After restarts in place, the pod has also run later attempts."""
    started: bool
    """Whether the trainer has started, so that it has a log."""
    ended: bool
    """Whether the trainer has ended; it is never started again in the same pod."""
    installs: bool = False
    """Whether the pod has the container INSTALL_CONTAINER."""
    finalizers: tuple[str, ...] = ()
    """The pod's finalizers, which must be removed before Kubernetes can delete the pod."""
    node_name: str = ""
    """The Kubernetes node; empty if the pod is not scheduled."""
    does: str = ""
    """In one word, why a container waits, such as ImagePullBackOff, or else the pod's phase."""
    created: str = ""
    scheduled: str = ""
    begun: str = ""
    """When the pod was created and scheduled, and when its first container began, in Kubernetes' format; empty until
    then."""

    @classmethod
    def of(cls, document: Document) -> "JobPod":
        """The pod in a document, which must be a pod of a job."""
        metadata = document["metadata"]
        statuses = document.get("status", {}).get("containerStatuses", [])
        trainer: Document = next((container for container in statuses if container["name"] == TRAINER_CONTAINER), {})
        state = trainer.get("state", {})
        return cls(
            name=metadata["name"],
            namespace=metadata["namespace"],
            uid=metadata["uid"],
            node=int(metadata["labels"][Label.NODE]),
            incarnation=int(metadata["labels"][Label.INCARNATION]),
            attempt=_attempt(document),
            started="running" in state or "terminated" in state,
            ended="terminated" in state,
            installs=any(
                container["name"] == INSTALL_CONTAINER
                for container in document.get("spec", {}).get("initContainers", ())
            ),
            finalizers=(*metadata.get("finalizers", ()),),
            node_name=document.get("spec", {}).get("nodeName", ""),
            does=_does(document),
            created=metadata.get("creationTimestamp", ""),
            scheduled=_scheduled(document),
            begun=min(_begins(document), default=""),
        )

    @property
    def runs(self) -> bool:
        """Whether the trainer runs."""
        return self.started and not self.ended

    @property
    def has_log(self) -> bool:
        """Whether the pod has a log: the trainer's, or that of a package installation, which may have failed."""
        return self.started or self.installs

    def last_attempt(self, status: DDPJobStatus) -> int:
        """The last attempt that the pod is known to have run."""
        if self.incarnation >= status.bookkeeping.incarnations.of(self.node):
            return max(self.attempt, status.attempt)
        return max(
            (incident.attempt for incident in status.incidents if incident.pod == self.name), default=self.attempt
        )


def of_job(documents: Iterable[Document], job: Document) -> list[JobPod]:
    """The pods in `documents` that belong to a job. Labels alone are no proof, because other pods may copy them."""
    metadata = job["metadata"]
    ref = JobRef(metadata["namespace"], metadata["name"], metadata["uid"])
    return [JobPod.of(document) for document in documents if owner_of(document) == ref]


def owner_of(document: Document) -> JobRef | None:
    """The job to which a pod belongs; None if there is none."""
    metadata = document["metadata"]
    controllers = (
        Controller(owner["apiVersion"], owner["kind"], owner["name"], owner["uid"])
        for owner in metadata.get("ownerReferences", ())
        if owner.get("controller")
    )
    labels, where = metadata.get("labels", {}), (metadata["namespace"], metadata["name"])
    return ownership.owner(next(controllers, None), *where, labels, ownership.pod)


def present(pods: Iterable[JobPod], status: DDPJobStatus) -> list[JobPod]:
    """The pods of the present attempt, by node, without reserves.

    A reserve is a pod beyond the present size that waits for room to grow; its trainer never starts.
    """
    now = (pod for pod in pods if pod.incarnation == status.bookkeeping.incarnations.of(pod.node))
    return _by_node(pod for pod in now if status.nodes is None or pod.node < status.nodes)


def previous_attempt(pods: Iterable[JobPod], status: DDPJobStatus) -> int:
    """The last attempt before the present one that still has a pod with a log; 0 if there is none."""
    past = (pod for pod in pods if pod.started and pod.attempt < status.attempt)
    return max((min(pod.last_attempt(status), status.attempt - 1) for pod in past), default=0)


def of_attempt(pods: Iterable[JobPod], status: DDPJobStatus, attempt: int) -> list[JobPod]:
    """The pods that ran an attempt, by node."""
    return _by_node(pod for pod in pods if pod.attempt <= attempt <= pod.last_attempt(status))


def _containers(document: Document) -> list[Document]:
    """The statuses of a pod's containers, in the order in which they begin."""
    status = document.get("status", {})
    return [*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())]


def _does(document: Document) -> str:
    waiting = (container.get("state", {}).get("waiting", {}).get("reason") for container in _containers(document))
    return next(filter(None, waiting), None) or str(document.get("status", {}).get("phase", ""))


def _scheduled(document: Document) -> str:
    conditions = document.get("status", {}).get("conditions", ())
    known = (one for one in conditions if one["type"] == "PodScheduled" and one["status"] == "True")
    return next((one.get("lastTransitionTime") or "" for one in known), "")


def _begins(document: Document) -> Iterable[str]:
    """When containers began."""
    states = (state for one in _containers(document) for state in one.get("state", {}).values())
    return filter(None, (state.get("startedAt") for state in states))


def _by_node(pods: Iterable[JobPod]) -> list[JobPod]:
    return sorted(pods, key=lambda pod: pod.node)


def _attempt(document: Document) -> int:
    """The attempt for which a pod was created: the variable ATTEMPT, which may be part of the JSON in SUPERVISOR."""
    trainer = next(entry for entry in document["spec"]["containers"] if entry["name"] == TRAINER_CONTAINER)
    env = {entry["name"]: entry.get("value", "") for entry in trainer["env"]}
    return int(env.get(Env.ATTEMPT) or json.loads(env[Env.SUPERVISOR])[Env.ATTEMPT])
