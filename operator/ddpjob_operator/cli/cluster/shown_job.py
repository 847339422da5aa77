"""Shows a job on a cluster while it runs, as local mode shows a run."""

import math
import threading
import time
from dataclasses import dataclass

from ddpjob_operator.cli.display import Display
from ddpjob_operator.cli.screen import Screen
from ddpjob_operator.client import Document, Jobs
from ddpjob_operator.engine import Event, called

from .life import Life
from .pod_logs import FOLLOWED, PodLogs

POLL_SECONDS = 0.2


@dataclass(frozen=True)
class ShownJob:
    """A job whose events and logs are shown."""

    life: Life
    logs: PodLogs
    display: Display

    @classmethod
    def on(cls, screen: Screen, jobs: Jobs, document: Document) -> "ShownJob":
        """The job in `document`, shown on a screen."""
        life = Life(jobs, document)
        writer, nodes = called(life.job), life.job.spec.nodes
        if nodes > FOLLOWED:
            screen.print(f"showing the logs of {writer}s 0 to {FOLLOWED - 1} of {nodes}")
        logs = PodLogs(jobs, document, range(FOLLOWED), writer)
        return cls(life, logs, Display(screen, logs))

    def follow(self, deadline: float = math.inf) -> None:
        """Shows the job until it ends, the monotonic clock has reached `deadline`, or the output is closed.

        Raises:
            ClusterError: the job was deleted, or the cluster cannot be reached any more.
        """
        closed = threading.Event()
        try:
            with self.display.following(lost=closed.set, status=lambda: self.life.job.status):
                self.logs.follow()
                self._tell(deadline, closed)
        finally:
            self.logs.stop()
            self.life.stop()

    def _tell(self, deadline: float, closed: threading.Event) -> None:
        reported = False
        while not self.life.over and not closed.is_set() and time.monotonic() < deadline:
            for event in self.life.news(POLL_SECONDS):
                self.display.tell(event)
            if self.logs.problem and not reported:
                reported = True
                self.display.tell(Event(warning=True, reason="Notice", message=f"no logs: {self.logs.problem}"))
        if self.life.over:
            self.logs.settle()
