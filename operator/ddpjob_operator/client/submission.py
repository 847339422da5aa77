"""Sending a job and its code to a cluster: a client that dies between two requests leaves nothing behind for good."""

from collections.abc import Callable
from contextlib import suppress

from ddpjob_operator.api import BadInputError, ConditionType

from .cluster import Document
from .code import Code, created
from .errors import ClusterError, RefusedError
from .jobs import Jobs, as_job


def check(jobs: Jobs, document: Document, code: Document | None, found: Document | None = None) -> None:
    """Asks the API server whether a job and its code could be created, or a `found` job changed; creates nothing.

    Raises:
        ExistsError: there is a job of this name.
        BadInputError: one of them could not be created.
        ClusterError: the cluster does not do its part.
    """
    if found is None:
        jobs.create(document, dry_run=True)
    else:
        jobs.replace(found, document | {"spec": {**document["spec"], "suspend": True}}, dry_run=True)
    if code is not None:
        Code(jobs.cluster).check(code)


def send(jobs: Jobs, document: Document, code: Document | None) -> Document:
    """Creates a job after its code, and makes it the code's owner; returns the job.

    Raises:
        ExistsError: there is a job of this name.
        BadInputError: the job or its code cannot be created; then neither is left.
        ClusterError: the cluster does not do its part.
    """
    if code is None:
        return jobs.create(document)
    check(jobs, document, code)
    store = Code(jobs.cluster)
    found, is_new = store.put(code)
    try:
        job = jobs.create(document)
    except (BadInputError, RefusedError):
        if is_new:
            store.remove(found["metadata"])
        raise
    _tidy(jobs, job, code, found)
    return job


def replace(
    jobs: Jobs, found: Document, document: Document, code: Document | None, tell: Callable[[str], None]
) -> Document:
    """Makes exactly this job run something else: it saves and stops, is changed, and goes on. Returns the new job.

    A client that dies before the end leaves it suspended; the same call goes on.

    Raises:
        BadInputError: it may not be changed like this, or no longer exists.
        ClusterError: it has ended or was deleted before it could be changed, or the cluster does not do its part.
    """
    check(jobs, document, code, found)
    store = Code(jobs.cluster)
    if code is not None:
        store.own(code, found)
    jobs.suspend(found)
    _wait_until_stopped(jobs, found, tell)
    job = jobs.replace(found, document)
    with suppress(ClusterError):  # As below.
        store.release(job)
    if code is not None:
        _tidy(jobs, job, code, None)
    return job


def _tidy(jobs: Jobs, job: Document, code: Document, found: Document | None) -> None:
    """The job exists. What cannot be cleaned up now, the next client will."""
    store = Code(jobs.cluster)
    with suppress(ClusterError):
        store.own(code, job, found)
        store.clear(jobs, created(job["metadata"]))


def _wait_until_stopped(jobs: Jobs, job: Document, tell: Callable[[str], None]) -> None:
    told = False
    for seen in jobs.watch(job):
        if seen is None:
            raise ClusterError(f"{job['metadata']['name']} was deleted")
        status = as_job(seen).status
        if status.finished:
            raise ClusterError(
                f"{job['metadata']['name']} has {status.state.lower()} in the meantime, so it was not changed"
            )
        seen_to = status.observed_generation >= seen["metadata"]["generation"]
        if seen_to and status.is_true(ConditionType.SUSPENDED):
            return
        if not told:
            told = True
            tell(f"{job['metadata']['name']}: its pods save and stop")
