"""`ddpjob checkpoint NAME` on a cluster: sets an annotation of the job, and the operator passes the request on."""

import threading
from functools import partial

from ddpjob_operator.api import DDPJobStatus
from ddpjob_operator.cli.checkpoint import check_unfinished, new_request, tell_outcome, tell_requested
from ddpjob_operator.cli.invocation import itself
from ddpjob_operator.cli.phrases import Rest
from ddpjob_operator.client import ClusterError, Document, Jobs, as_job

UNNOTICED_SECONDS = 10.0
UNNOTICED = "no operator has noticed the request yet; is an operator of this release installed and running?"


def checkpoint(jobs: Jobs, name: str, *, wait: bool) -> int | Rest:
    """Requests a checkpoint of a job. With `wait`, returns a function that waits until it is complete.

    Raises:
        BadInputError: there is no such job, or it has finished.
        ClusterError: the cluster cannot be reached, or does not fulfil a request.
    """
    document = jobs.get(name)
    before = as_job(document)
    check_unfinished(name, before.status)
    jobs.request_checkpoint(document, new_request())
    if wait:
        return partial(_wait, jobs, document, before.status)
    return tell_requested(name, f"{itself()} status {name} -n {before.metadata.namespace}")


def _wait(jobs: Jobs, document: Document, before: DDPJobStatus) -> int:
    name = document["metadata"]["name"]
    unnoticed = threading.Timer(UNNOTICED_SECONDS, partial(print, f"{name}: {UNNOTICED}", flush=True))
    unnoticed.daemon = True
    unnoticed.start()
    try:
        for seen in jobs.watch(document):
            if seen is None:
                raise ClusterError(f"{name} was deleted")
            status = as_job(seen).status
            if (code := tell_outcome(name, before, status)) is not None:
                return code
            if status.finished:
                raise ClusterError(f"{name} has {status.state.lower()}")
            if status.requested_checkpoint != before.requested_checkpoint:
                unnoticed.cancel()
    finally:
        unnoticed.cancel()
    raise AssertionError("a watch never ends")
