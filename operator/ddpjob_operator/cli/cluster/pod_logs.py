"""Follows the logs of a job's pods, through restarts of the gang and interruptions of the network."""

import queue
import threading
import time
from collections.abc import Collection, Iterator

from ddpjob_operator.cli.run_logs import Line, Which, shown_last
from ddpjob_operator.client import ClosedError, ClusterError, Document, JobPod, Jobs, RefusedError, UnreachableError

FOLLOWED = 64
"""How many nodes are followed if no node is chosen. There is a limit because each log needs a connection."""
EVERYTHING = Which()
RETRY_SECONDS = 1.0
SETTLE_SECONDS = 20.0
"""How long to wait for the last lines after the job has ended."""


class PodLogs:
    """Reads the logs of a job's pods into one stream of lines, with a thread for each log."""

    def __init__(
        self,
        jobs: Jobs,
        document: Document,
        nodes: Collection[int],
        writer: str = "rank",
        which: Which = EVERYTHING,
    ) -> None:
        self.problem: ClusterError | None = None
        """The error after which no more lines arrive; None if there was none."""
        self._jobs = jobs.apart()
        self._document = document
        self._nodes = nodes
        self._writer = writer
        self._which = which
        self._begun: frozenset[str] = frozenset()
        self._lines: queue.SimpleQueue[Line] = queue.SimpleQueue()
        self._taken = 0
        self._readers: dict[str, threading.Thread] = {}
        self._starting = threading.Lock()
        self._stopped = threading.Event()

    def follow(self, skipped: Collection[JobPod] = (), begun: Collection[JobPod] = ()) -> None:
        """Starts to read the logs of all pods except `skipped`.

        `begun` are the pods that have already started. The limits of `which` on lines and time apply only to their
        logs; the logs of later pods are read from the start.
        """
        self._begun = frozenset(pod.uid for pod in begun)
        self._readers |= {pod.uid: threading.Thread() for pod in skipped}
        threading.Thread(target=self._watch, daemon=True, name="pods").start()

    def stop(self) -> None:
        """Ends the search for new pods and the reading of their logs, with all threads."""
        self._stopped.set()
        self._jobs.cluster.close()

    def skip(self) -> None:
        """Skips the lines that have been read so far."""
        for _ in self.lines():
            pass

    def lines(self, *, last: bool = False) -> Iterator[Line]:  # noqa: ARG002  Lines are whole when they arrive.
        """The lines that were read since the previous call."""
        return self._until(self._taken + self._lines.qsize())

    def _until(self, number: int) -> Iterator[Line]:
        while self._taken < number:
            line = self._lines.get_nowait()
            self._taken += 1
            yield line

    def unfinished(self) -> Iterator[Line]:
        """Yields nothing: lines are whole when they arrive."""
        return iter(())

    def settle(self) -> None:
        """Waits until all logs are read to the end, for at most SETTLE_SECONDS. Call this after the job has ended."""
        deadline = time.monotonic() + SETTLE_SECONDS
        try:
            self._read_new(self._jobs.pods(self._document))
        except ClusterError as error:
            self.problem = error
        for reader in self._readers.values():
            if reader.ident is not None:
                reader.join(max(0.0, deadline - time.monotonic()))

    def _watch(self) -> None:
        try:
            for pods in self._jobs.watch_pods(self._document):
                self._read_new(pods)
        except ClosedError:
            return
        except ClusterError as error:
            self.problem = error

    def _read_new(self, pods: list[JobPod]) -> None:
        with self._starting:
            for pod in sorted(pods, key=lambda pod: (pod.attempt, pod.node)):
                wanted = pod.started and pod.node in self._nodes and pod.uid not in self._readers
                if wanted and not self._stopped.is_set():
                    reader = threading.Thread(target=self._read, args=(pod,), daemon=True, name=pod.name)
                    self._readers[pod.uid] = reader
                    reader.start()

    def _read(self, pod: JobPod) -> None:
        """Reads a pod's log to its end.

        The log has been read completely if a read that began after the trainer's end was not interrupted.
        """
        now: JobPod | None = pod
        after, which = "", self._which if pod.uid in self._begun else EVERYTHING
        while now is not None and not self._stopped.is_set():
            whole, before = now.ended, after
            try:
                log = self._jobs.log(pod, after, tail=which.tail, since_seconds=which.since_seconds)
                for moment, text in log:
                    after = moment
                    if (shown := shown_last(text)) is not None:
                        line = self._which.shown(moment, shown)
                        self._lines.put(Line(pod.node, pod.attempt, line, self._writer, moment))
                if whole:
                    return
                now = self._jobs.pod(pod)
                self._stopped.wait(0.0 if now is None or now.ended else RETRY_SECONDS)
            except ClosedError:
                return
            except UnreachableError:  # After new lines, retry without a pause: failed pods are deleted soon.
                self._stopped.wait(RETRY_SECONDS if after == before else 0.0)
            except RefusedError as error:
                self.problem = None if error.missing else error
                return
