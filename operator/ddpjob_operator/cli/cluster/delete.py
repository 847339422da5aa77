"""`ddpjob delete NAME`: ends a job on a cluster and removes everything that belongs to it."""

import math
import time
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

from ddpjob_operator.api.words import counted
from ddpjob_operator.cli.phrases import Rest
from ddpjob_operator.client import ClusterError, Document, JobPod, Jobs, RefusedError

POLL_SECONDS = 0.5
DEADLINE_SECONDS = 600.0
"""How long to wait for pods to end, including their grace periods. A pod that takes longer is probably on a
Kubernetes node that does not respond."""
HELD_SECONDS = 5.0
"""How long a finalizer may block a deletion before this is reported. The finalizer's controller needs a moment to
remove it."""
UNSEEN = "; you are not allowed to list pods here, so ddpjob does not wait for them to end"


def delete(jobs: Jobs, name: str, *, wait: bool) -> int | Rest:
    """Deletes the job. With `wait`, returns a function that waits until the job and its pods no longer exist.

    Raises:
        BadInputError: there is no such job.
        ClusterError: the cluster cannot be reached, or does not fulfil a request.
    """
    job = jobs.get(name)
    pods = _pods(jobs, job)
    jobs.delete(job)
    deleted = f"it, its Service and {counted(len(pods), 'pod')}" if pods else "it"
    print(f"{name}: deleting {deleted}{'' if pods is not None else UNSEEN}", flush=True)
    return partial(_wait, jobs, job, with_pods=pods is not None) if wait else 0


def _pods(jobs: Jobs, job: Document) -> list[JobPod] | None:
    """The job's pods; None if the user is not allowed to list pods. Deleting a job does not need this right."""
    try:
        return jobs.pods(job)
    except RefusedError as error:
        if error.forbidden:
            return None
        raise


def _wait(jobs: Jobs, job: Document, *, with_pods: bool) -> int:
    name, began = job["metadata"]["name"], time.monotonic()
    held: dict[_Left, float] = {}
    while left := _left(jobs, job, with_pods=with_pods):
        now = time.monotonic()
        if now - began > DEADLINE_SECONDS:
            raise ClusterError(f"{name}: still there after {DEADLINE_SECONDS:.0f} s: {', '.join(map(str, left))}")
        held = {one: held.get(one, now) for one in left if one.finalizers}
        for one in (one for one, since in held.items() if now - since >= HELD_SECONDS):
            print(f"{name}: {one.what} is {one.kept}; the controller that set it must remove it", flush=True)
            held[one] = math.inf  # Report each object only once.
        time.sleep(POLL_SECONDS)
    print(f"{name}: deleted", flush=True)
    return 0


@dataclass(frozen=True)
class _Left:
    """An object of the job that still exists."""

    what: str
    finalizers: tuple[str, ...]
    """The finalizers that block the removal of the object. None are listed for a pod that is still running."""

    @property
    def kept(self) -> str:
        """The finalizers that block the deletion, in words."""
        return f"kept by {' and '.join(f'finalizer {name}' for name in self.finalizers)}"

    def __str__(self) -> str:
        return f"{self.what} ({self.kept})" if self.finalizers else self.what


def _left(jobs: Jobs, job: Document, *, with_pods: bool) -> list[_Left]:
    """The objects of the job that still exist."""
    own = jobs.find(job)
    pods = jobs.pods(job) if with_pods else []
    return [
        *([_Left("the job itself", _foreign(own["metadata"].get("finalizers", ())))] if own else []),
        *(_Left(f"pod {pod.name}", () if pod.runs else _foreign(pod.finalizers)) for pod in pods),
    ]


def _foreign(finalizers: Iterable[str]) -> tuple[str, ...]:
    """The finalizers that other controllers have set. Kubernetes' own, such as foregroundDeletion, have no domain."""
    return tuple(finalizer for finalizer in finalizers if "/" in finalizer)
