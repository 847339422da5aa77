"""Shows a job in a notebook while the notebook waits for it."""

import math
import sys
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field

from ddpjob_operator.cli.cluster.life import Life
from ddpjob_operator.cli.cluster.pod_logs import FOLLOWED, PodLogs
from ddpjob_operator.cli.display import origin
from ddpjob_operator.client import Document, Jobs
from ddpjob_operator.engine import Event, called

from .picture import Picture

Publish = Callable[[str, str], None]
"""Shows HTML, or the same as plain text, in the place of what it has shown before."""

POLL_SECONDS = 0.2
REDRAW_SECONDS = 0.5
"""The shortest time from one picture to the next: each is sent to the browser, and may be stored."""


def publisher() -> Publish | None:
    """Shows things in the notebook in which this program runs; None if it runs elsewhere, such as in a terminal.

    IPython is used only if it is loaded. The display is updated by its id; many notebooks do not show widgets.
    """
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if shell is None or not hasattr(shell, "kernel"):
        return None
    place, shown = {"display_id": uuid.uuid4().hex}, False

    def publish(html: str, plain: str) -> None:
        nonlocal shown
        data = {"text/html": html, "text/plain": plain}
        shell.display_pub.publish(data=data, metadata={}, transient=place, update=shown)
        shown = True

    return publish


@dataclass
class JobInNotebook:
    """A job whose events, logs and progress are shown in a notebook. The last picture stays in its file."""

    life: Life
    _logs: PodLogs
    _publish: Publish
    _picture: Picture
    _last: str = field(default="", init=False)
    _redraw_at: float = field(default=0.0, init=False)

    @classmethod
    def on(cls, publish: Publish, jobs: Jobs, document: Document) -> "JobInNotebook":
        """The job in `document`, shown by `publish`."""
        life = Life(jobs, document)
        return cls(life, PodLogs(jobs, document, range(FOLLOWED), called(life.job)), publish, Picture(life.job))

    def follow(self, deadline: float = math.inf) -> None:
        """Shows the job until it ends, or the monotonic clock has reached `deadline`.

        Raises:
            ClusterError: the job was deleted, or the cluster cannot be reached any more.
        """
        try:
            self._logs.follow()
            while not self.life.over and time.monotonic() < deadline:
                self._take()
                self._draw()
            if self.life.over:
                self._logs.settle()
        finally:
            self._logs.stop()
            self.life.stop()
            self._read()
            self._draw(now=True)

    def _take(self) -> None:
        for event in self.life.news(POLL_SECONDS):
            self._tell(event)
        if (problem := self._logs.problem) is not None:
            self._tell(Event(warning=True, reason="Notice", message=f"no logs: {problem}"))
        self._read()

    def _tell(self, event: Event) -> None:
        self._picture.tell(f"{origin(event)}{event.message}")

    def _read(self) -> None:
        for line in self._logs.lines():
            self._picture.read(line)
        self._picture.update(self.life.job)

    def _draw(self, *, now: bool = False) -> None:
        if not now and time.monotonic() < self._redraw_at:
            return
        self._redraw_at = time.monotonic() + REDRAW_SECONDS
        if (html := self._picture.html()) != self._last:
            self._last = html
            self._publish(html, self._picture.plain())
