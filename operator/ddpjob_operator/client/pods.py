"""What a user's tools need to know about a job's pods."""

import json
from collections.abc import Iterable
from dataclasses import dataclass

from ddpjob_operator.api import DDPJobStatus, ownership
from ddpjob_operator.api.contract import TRAINER_CONTAINER, Env, Label
from ddpjob_operator.api.ownership import Controller, JobRef

from .cluster import Document

INSTALL_CONTAINER = "install-packages"
"""The container that installs packages before the trainer starts; its log comes before the trainer's."""


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
    """The attempt that it was made for. Restarts in place may have added others."""
    started: bool
    """Whether its trainer has a log: it runs or has run."""
    ended: bool
    """Whether its trainer has ended for good."""
    installs: bool = False
    """Whether packages were installed for it, by a container with a log of its own."""

    @classmethod
    def of(cls, document: Document) -> "JobPod":
        """The pod of a document that belongs to a job."""
        metadata = document["metadata"]
        statuses = document.get("status", {}).get("containerStatuses", [])
        trainer: Document = next((one for one in statuses if one["name"] == TRAINER_CONTAINER), {})
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
                one["name"] == INSTALL_CONTAINER for one in document.get("spec", {}).get("initContainers", ())
            ),
        )

    @property
    def has_log(self) -> bool:
        """Whether it has one: if packages cannot be installed, only that says why."""
        return self.started or self.installs

    def last_attempt(self, status: DDPJobStatus) -> int:
        """The last attempt that it is known to have taken part in."""
        if self.incarnation >= status.bookkeeping.incarnations.of(self.node):
            return max(self.attempt, status.attempt)
        return max(
            (incident.attempt for incident in status.incidents if incident.pod == self.name), default=self.attempt
        )


def of_job(documents: Iterable[Document], job: Document) -> list[JobPod]:
    """Those that are pods of a job: anybody's may have its labels."""
    metadata = job["metadata"]
    ref = JobRef(metadata["namespace"], metadata["name"], metadata["uid"])
    return [JobPod.of(one) for one in documents if owner_of(one) == ref]


def owner_of(document: Document) -> JobRef | None:
    """The job to which a pod belongs; None if it is nobody's."""
    metadata = document["metadata"]
    controllers = (
        Controller(one["apiVersion"], one["kind"], one["name"], one["uid"])
        for one in metadata.get("ownerReferences", ())
        if one.get("controller")
    )
    labels, where = metadata.get("labels", {}), (metadata["namespace"], metadata["name"])
    return ownership.owner(next(controllers, None), *where, labels, ownership.pod)


def present(pods: Iterable[JobPod], status: DDPJobStatus) -> list[JobPod]:
    """The pods of the present attempt by node: neither those kept from former ones, nor those beyond its size.

    A pod beyond the present size waits for room to grow; its trainer never starts.
    """
    now = (pod for pod in pods if pod.incarnation == status.bookkeeping.incarnations.of(pod.node))
    return _by_node(pod for pod in now if status.nodes is None or pod.node < status.nodes)


def previous_attempt(pods: Iterable[JobPod], status: DDPJobStatus) -> int:
    """The last attempt before the present one of which a pod with a log still exists; 0 if there is none."""
    past = (pod for pod in pods if pod.started and pod.attempt < status.attempt)
    return max((min(pod.last_attempt(status), status.attempt - 1) for pod in past), default=0)


def of_attempt(pods: Iterable[JobPod], status: DDPJobStatus, attempt: int) -> list[JobPod]:
    """The pods that took part in an attempt, by node."""
    return _by_node(pod for pod in pods if pod.attempt <= attempt <= pod.last_attempt(status))


def _by_node(pods: Iterable[JobPod]) -> list[JobPod]:
    return sorted(pods, key=lambda pod: pod.node)


def _attempt(document: Document) -> int:
    """The attempt that a pod says it was made for: behind a supervisor, in the variable that holds all of its own."""
    trainer = next(one for one in document["spec"]["containers"] if one["name"] == TRAINER_CONTAINER)
    env = {one["name"]: one.get("value", "") for one in trainer["env"]}
    return int(env.get(Env.ATTEMPT) or json.loads(env[Env.SUPERVISOR])[Env.ATTEMPT])
