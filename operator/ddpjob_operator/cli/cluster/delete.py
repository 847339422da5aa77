"""`ddpjob delete NAME`: ends a job on a cluster and removes everything that belongs to it."""

import time
from functools import partial

from ddpjob_operator.api.words import counted
from ddpjob_operator.cli.phrases import Rest
from ddpjob_operator.client import ClusterError, Document, JobPod, Jobs, RefusedError

POLL_SECONDS = 0.5
DEADLINE_SECONDS = 600.0
"""How long to wait for pods to end within their grace periods; beyond this, a Kubernetes node is not responding."""
UNSEEN = "; you may not list pods here, so ddpjob does not wait for them to end"


def delete(jobs: Jobs, name: str, *, wait: bool) -> int | Rest:
    """Deletes the job. With `wait`, returns a function that waits until the job and its pods no longer exist.

    Raises:
        BadInputError: there is no such job.
        ClusterError: the cluster failed to do its part.
    """
    job = jobs.get(name)
    pods = _pods(jobs, job)
    jobs.delete(job)
    deleted = f"it, its Service and {counted(len(pods), 'pod')}" if pods else "it"
    print(f"{name}: deleting {deleted}{'' if pods is not None else UNSEEN}", flush=True)
    return partial(_wait, jobs, job, with_pods=pods is not None) if wait else 0


def _pods(jobs: Jobs, job: Document) -> list[JobPod] | None:
    """The job's pods; None if the user may not list pods, which is not needed to delete the job."""
    try:
        return jobs.pods(job)
    except RefusedError as error:
        if error.forbidden:
            return None
        raise


def _wait(jobs: Jobs, job: Document, *, with_pods: bool) -> int:
    name, deadline = job["metadata"]["name"], time.monotonic() + DEADLINE_SECONDS
    while left := _left(jobs, job, with_pods=with_pods):
        if time.monotonic() > deadline:
            raise ClusterError(f"{name}: still there after {DEADLINE_SECONDS:.0f} s: {', '.join(left)}")
        time.sleep(POLL_SECONDS)
    print(f"{name}: deleted", flush=True)
    return 0


def _left(jobs: Jobs, job: Document, *, with_pods: bool) -> list[str]:
    """The names of the objects of the job that still exist."""
    own = ["the job itself"] if jobs.exists(job) else []
    return [*own, *(f"pod {pod.name}" for pod in (jobs.pods(job) if with_pods else ()))]
