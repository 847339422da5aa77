"""Opens what is kept of a job on a cluster, wherever its history is."""

import shlex
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from ddpjob_operator.api import BadInputError, DDPJob
from ddpjob_operator.api.spec import is_url
from ddpjob_operator.client import Cluster
from ddpjob_operator.engine import history_of, history_path
from ddpjob_operator.history import HistoryPlace, JobHistory, find_history, open_place

from .claim_place import claim_of, image_of, opened_address, why_no_history


@contextmanager
def opened_history(cluster: Cluster, job: DDPJob) -> Iterator[JobHistory]:
    """Opens a job's history for as long as the block runs. The job may have been deleted.

    An object store is read with this user's credentials. A volume claim is read by a pod, which this user has to be
    allowed to create and to reach.

    Raises:
        BadInputError: The job has no history, or nobody can read it from here.
        PlaceError: The place cannot be read.
    """
    identity = job.metadata
    with opened_place(cluster, job) as place:
        yield find_history(place, identity.namespace, identity.name, identity.uid)


def keeps_history(job: DDPJob) -> str | None:
    """Where a job keeps its history, as a directory or a URL, or will keep it once it has started; None: nowhere."""
    return history_of(job) or (None if job.status.attempt else history_path(job.spec))


def opened_place(cluster: Cluster, job: DDPJob) -> AbstractContextManager[HistoryPlace]:
    """Opens the place with a job's history, as `opened_history` does."""
    name, path = job.metadata.name, keeps_history(job)
    if path is None:
        raise BadInputError(f"{name} has no history, so what it printed went with its pods: {why_no_history(job)}")
    if is_url(path):
        return nullcontext(open_place(path))
    address = claim_of(job, path)
    if address is None:
        raise BadInputError(
            f"the history of {name} is at {path}, on no volume claim; read a copy with ddpjob logs --history"
        )
    image = image_of(job)
    if image is None:
        raise BadInputError(
            f"{name} names no image for a pod that reads its history; name one with ddpjob logs {name} --history "
            f"{shlex.quote(address)} --reader-image IMAGE"
        )
    return opened_address(cluster, address, *image)
