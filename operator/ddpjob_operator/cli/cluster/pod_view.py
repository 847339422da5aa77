"""What a screen shows of a job's pods and ranks on a cluster."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import NamedTuple

from ddpjob_operator.api import DDPJob
from ddpjob_operator.client import ClusterError, Document, JobPod, Jobs, present
from ddpjob_operator.view_model import PodSeen


def pod_seen(pod: JobPod) -> PodSeen:
    """A pod as screens know it."""
    times = (
        datetime.fromisoformat(at).astimezone(UTC) if at else None for at in (pod.created, pod.scheduled, pod.begun)
    )
    return PodSeen(pod.node, pod.name, pod.node_name, pod.does, *times)


class GangSeen(NamedTuple):
    """What can be seen of a job's gang."""

    pods: list[JobPod]
    page: Document | None
    problem: str


def pods_and_page(
    jobs: Jobs, document: Document, job: DDPJob, pods_of: Callable[[], list[JobPod]] | None = None
) -> GangSeen:
    """The present pods of a job that has not ended, its status page, and why one of these cannot be had.

    The page is None, and the reason empty, if no supervisor serves one. `pods_of` gives all pods that exist, if they
    are known without asking.
    """
    pods: list[JobPod] = []
    page: Document | None = None
    if not job.status.finished:
        try:
            pods = present(pods_of() if pods_of else jobs.pods(document), job.status)
            page = jobs.status_page(document, pods) if job.status.bookkeeping.supervised else None
        except ClusterError as error:
            return GangSeen(pods, None, str(error))
    return GangSeen(pods, page, "")
