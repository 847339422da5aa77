"""`ddpjob delete NAME`: ends a job on a cluster and removes all that belongs to it."""

import time
from functools import partial

from ddpjob_operator.api.words import counted
from ddpjob_operator.cli.phrases import Rest
from ddpjob_operator.client import ClusterError, Document, JobPod, Jobs, RefusedError

POLL_SECONDS = 0.5
DEADLINE_SECONDS = 600.0
"""Pods get their grace period; if it takes longer than this, a Kubernetes node does not answer."""
UNSEEN = "; you may not list pods here, so ddpjob does not wait for them to end"


def delete(jobs: Jobs, name: str, *, wait: bool) -> int | Rest:
    """Removes the job. With `wait`, what is left is to wait until there is nothing of it any more.

    Raises:
        BadInputError: there is no such job.
        ClusterError: the cluster does not do its part.
    """
    job = jobs.get(name)
    pods = _pods(jobs, job)
    jobs.delete(job)
    what = f"it, its Service and {counted(len(pods), 'pod')}" if pods else "it"
    print(f"{name}: deleting {what}{'' if pods is not None else UNSEEN}", flush=True)
    return partial(_wait, jobs, job, with_pods=pods is not None) if wait else 0


def _pods(jobs: Jobs, job: Document) -> list[JobPod] | None:
    """The job's pods; None if the user may not see any: the right to delete the job is enough to delete it."""
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
    """What is left of the job."""
    itself = ["the job itself"] if jobs.exists(job) else []
    return [*itself, *(f"pod {pod.name}" for pod in (jobs.pods(job) if with_pods else ()))]
