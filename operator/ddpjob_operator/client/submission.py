"""Bringing a job and its code to a cluster: whoever dies between two requests leaves nothing behind for good."""

from collections.abc import Callable
from contextlib import suppress

from ddpjob_operator.api import BadInputError, ConditionType

from .cluster import Document
from .code import Code, created
from .errors import ClusterError, RefusedError
from .jobs import Jobs, as_job


def check(jobs: Jobs, document: Document, code: Document | None, found: Document | None = None) -> None:
    """Asks the API server whether a job and its code could be made, or a job that was `found` changed; makes nothing.

    Raises:
        ExistsError: there is a job of this name.
        BadInputError: one of them could not be made, or the user may not make it.
        ClusterError: the cluster does not do its part.
    """
    if found is None:
        jobs.create(document, dry_run=True)
    else:
        jobs.replace(found, document | {"spec": {**document["spec"], "suspend": True}}, dry_run=True)
    if code is not None:
        Code(jobs.cluster).check(code)


def send(jobs: Jobs, document: Document, code: Document | None) -> Document:
    """Makes a job after its code, and has it own that; returns the job.

    Raises:
        ExistsError: there is a job of this name.
        BadInputError: the job or its code cannot be made; then neither is there.
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
    """Has this very job run something else: it saves and stops, is changed, and goes on. Returns it as it is then.

    Who dies before the end leaves it suspended, and goes on by the same call.

    Raises:
        BadInputError: it may not be changed so, has finished, or is not there any more.
        ClusterError: the cluster does not do its part.
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
    """The job is made. What cannot be set right beside it now, the next one's client will."""
    store = Code(jobs.cluster)
    with suppress(ClusterError):
        store.own(code, job, found)
        store.clear(jobs, created(job["metadata"]))


def _wait_until_stopped(jobs: Jobs, job: Document, tell: Callable[[str], None]) -> None:
    told = False
    for seen in jobs.watch(job):
        if seen is None:
            raise BadInputError(f"{job['metadata']['name']} is not there any more")
        status = as_job(seen).status
        if status.finished:
            raise BadInputError(
                f"{job['metadata']['name']} has {status.state.lower()} meanwhile, and stays as it was"
            )
        seen_to = status.observed_generation >= seen["metadata"]["generation"]
        if seen_to and status.is_true(ConditionType.SUSPENDED):
            return
        if not told:
            told = True
            tell(f"{job['metadata']['name']}: its pods save and stop")
