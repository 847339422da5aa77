"""Sends a job and its code to a cluster.

If a client dies between two requests, the next client cleans up after it.
"""

from collections.abc import Callable
from contextlib import suppress

from ddpjob_operator.api import BadInputError, ConditionType

from .cluster import Document
from .code import Code, created
from .errors import ClusterError, RefusedError
from .jobs import Jobs, as_job


def check(jobs: Jobs, document: Document, code: Document | None, found: Document | None = None) -> None:
    """Checks by a dry run on the API server whether a job and its code can be created, or the job `found` changed.

    Raises:
        ExistsError: there is a job of this name.
        BadInputError: the job or its code could not be created, or the job could not be changed.
        ClusterError: the cluster cannot be reached, or refuses for another reason.
    """
    if found is None:
        jobs.create(document, dry_run=True)
    else:
        jobs.replace(found, document | {"spec": {**document["spec"], "suspend": True}}, dry_run=True)
    if code is not None:
        Code(jobs.cluster).check(code)


def send(jobs: Jobs, document: Document, code: Document | None) -> Document:
    """Stores the code, creates the job, and makes the job the owner of the code. Returns the job.

    Raises:
        ExistsError: there is a job of this name.
        BadInputError: the job or its code cannot be created; then neither exists.
        ClusterError: the cluster cannot be reached, or refuses for another reason.
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
    """Suspends the job `found`, replaces its spec by that of `document`, and resumes it. Returns the changed job.

    If the client dies before the end, the job stays suspended; another call with the same arguments completes the
    change. `tell` is called with a message if the job has to stop first.

    Raises:
        BadInputError: the job may not be changed in this way, or no longer exists.
        ClusterError: the job ended or was deleted before it could be changed, or the cluster cannot be reached or
            refuses for another reason.
    """
    check(jobs, document, code, found)
    store = Code(jobs.cluster)
    if code is not None:
        store.own(code, found)
    jobs.suspend(found)
    _wait_until_stopped(jobs, found, tell)
    job = jobs.replace(found, document)
    with suppress(ClusterError):  # If this fails, the next client cleans up.
        store.release(job)
    if code is not None:
        _tidy(jobs, job, code, None)
    return job


def _tidy(jobs: Jobs, job: Document, code: Document, found: Document | None) -> None:
    """Makes the job own its code, and cleans up. Errors are ignored, because the next client repairs the damage."""
    store = Code(jobs.cluster)
    with suppress(ClusterError):
        store.own(code, job, found)
        store.clear(jobs, created(job["metadata"]))


def _wait_until_stopped(jobs: Jobs, job: Document, tell: Callable[[str], None]) -> None:
    is_told = False
    for seen in jobs.watch(job):
        if seen is None:
            raise ClusterError(f"{job['metadata']['name']} was deleted")
        status = as_job(seen).status
        if status.finished:
            raise ClusterError(
                f"{job['metadata']['name']} has {status.state.lower()} in the meantime, so it was not changed"
            )
        is_current = status.observed_generation >= seen["metadata"]["generation"]
        if is_current and status.is_true(ConditionType.SUSPENDED):
            return
        if not is_told:
            is_told = True
            tell(f"{job['metadata']['name']}: its pods save and stop")
