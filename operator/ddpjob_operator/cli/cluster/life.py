"""Follows a job on a cluster, and reports its events as local mode does."""

import queue
import threading
import time
from collections.abc import Iterator

from ddpjob_operator.api import DDPJob, State
from ddpjob_operator.client import ClusterError, Document, Jobs, as_job
from ddpjob_operator.engine import Event, events

WAITING = frozenset({State.PENDING, State.QUEUED, State.STARTING, State.RESTARTING, State.SUSPENDING})
SETTLED_SECONDS = 3.0
"""A status message is reported only if it stays the same for this long. Other messages change too fast to be read."""
UNNOTICED = "no operator has seen the job yet; is one installed and running?"
UNNOTICED_CLASS = "no operator of class {} has taken the job yet; is one installed, and does it serve this namespace?"
UNNOTICED_SECONDS = 10.0
"""If a job has no status for this long, probably no operator is running: an operator notices a new job within a
second, even while its leader changes."""


def unnoticed(job: DDPJob) -> str:
    """Why no operator has the job; empty if one has it.

    While a job does not run, a change of its class gives it to another operator, which then writes its own name.
    """
    status, class_name = job.status, job.metadata.class_name
    moved = status.operator and status.start_time is None and (status.class_name or "") != class_name
    if status.message and (status.finished or not moved):
        return ""
    if not job.spec.ours:
        return f"{job.spec.managed_by} manages this job (managedBy); the DDPJob operator leaves it alone"
    return UNNOTICED_CLASS.format(class_name) if class_name else UNNOTICED


class Life:
    """Watches a job from now until it ends."""

    def __init__(self, jobs: Jobs, document: Document) -> None:
        self.job: DDPJob = as_job(document)
        self._seen: queue.SimpleQueue[Document | ClusterError | None] = queue.SimpleQueue()
        self._since = time.monotonic()
        self._told = ""
        self._jobs = jobs.apart()
        threading.Thread(target=self._watch, args=(document,), daemon=True, name="job").start()

    @property
    def over(self) -> bool:
        """Whether the job has ended."""
        return self.job.status.finished

    def stop(self) -> None:
        """Ends the watch, and its thread."""
        self._jobs.cluster.close()

    def news(self, seconds: float) -> Iterator[Event]:
        """The events since the last call; waits up to `seconds` for a change of the job.

        Raises:
            ClusterError: the job was deleted, or the cluster cannot be reached any more.
        """
        try:
            seen = self._seen.get(timeout=seconds)
        except queue.Empty:
            yield from self._wait_told()
            return
        if isinstance(seen, ClusterError):
            raise seen
        if seen is None:
            raise ClusterError(f"{self.job.metadata.name} was deleted")
        before, self.job = self.job.status, as_job(seen)
        if before.message != self.job.status.message:
            self._since = time.monotonic()
        yield from events(before, self.job.status)

    def _wait_told(self) -> Iterator[Event]:
        """Yields a notice of what the job is waiting for, if it has waited long enough and the notice is new."""
        status, stood = self.job.status, time.monotonic() - self._since
        message = ""
        if stood > UNNOTICED_SECONDS and (why := unnoticed(self.job)):
            message = why
        elif status.state in WAITING and stood > SETTLED_SECONDS:
            message = status.message
        if message and message != self._told:
            self._told = message
            yield Event(warning=False, reason="Notice", message=message)

    def _watch(self, document: Document) -> None:
        try:
            for seen in self._jobs.watch(document):
                self._seen.put(seen)
                if seen is None or as_job(seen).status.finished:
                    return
        except ClusterError as error:
            self._seen.put(error)
