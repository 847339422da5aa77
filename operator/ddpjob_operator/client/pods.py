"""What a user's tools need to know of a job's pods."""

from collections.abc import Iterable
from dataclasses import dataclass

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


def present(pods: Iterable[Pod]) -> list[Pod]:
    """The last pod of each rank, by rank."""
    last = {pod.rank: pod for pod in sorted(pods, key=lambda pod: pod.incarnation)}
    return [last[rank] for rank in sorted(last)]


def previous(pods: Iterable[Pod]) -> list[Pod]:
    """The pod of each rank that was there before the present one, as far as it still exists."""
    pods = list(pods)
    now = {pod.uid for pod in present(pods)}
    return present(pod for pod in pods if pod.uid not in now)
