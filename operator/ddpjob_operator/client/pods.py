"""What a user's tools need to know of a job's pods."""

from collections.abc import Iterable
from dataclasses import dataclass

from ddpjob_operator.api import DDPJobStatus
from ddpjob_operator.api.contract import TRAINER_CONTAINER, Label

from .cluster import Document


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod of a job."""

    name: str
    namespace: str
    uid: str
    rank: int
    """The node's rank."""
    incarnation: int
    started: bool
    """Whether its trainer has a log: it runs or has run."""
    ended: bool
    """Whether its trainer has ended, for good."""

    @classmethod
    def of(cls, document: Document) -> "Pod":
        """The pod of a document with the labels of the contract."""
        metadata = document["metadata"]
        statuses = document.get("status", {}).get("containerStatuses", [])
        trainer: Document = next((one for one in statuses if one["name"] == TRAINER_CONTAINER), {})
        state = trainer.get("state", {})
        return cls(
            name=metadata["name"],
            namespace=metadata["namespace"],
            uid=metadata["uid"],
            rank=int(metadata["labels"][Label.RANK]),
            incarnation=int(metadata["labels"][Label.INCARNATION]),
            started="running" in state or "terminated" in state,
            ended="terminated" in state,
        )


def present(pods: Iterable[Pod], status: DDPJobStatus) -> list[Pod]:
    """The pods of the present attempt by rank: neither those that are kept of former ones, nor those beyond its size.

    A pod beyond the present size waits for room to grow; its trainer never starts.
    """
    now = of_attempt(pods, status.incarnations.default)
    return [pod for pod in now if status.nodes is None or pod.rank < status.nodes]


def previous(pods: Iterable[Pod], status: DDPJobStatus) -> list[Pod]:
    """The pods that still exist of the last attempt before the present one that has left any with a log."""
    former = [pod for pod in pods if pod.started and pod.incarnation < status.incarnations.default]
    return of_attempt(former, max((pod.incarnation for pod in former), default=0))


def of_attempt(pods: Iterable[Pod], attempt: int) -> list[Pod]:
    """The pods of an attempt, by rank."""
    return sorted((pod for pod in pods if pod.incarnation == attempt), key=lambda pod: pod.rank)
