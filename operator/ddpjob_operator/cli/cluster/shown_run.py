"""Shows a run on held nodes as `ddpjob run` shows one on this machine."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from ddpjob_operator.api import ConditionType, DDPJobStatus
from ddpjob_operator.cli.display import Display
from ddpjob_operator.cli.phrases import say
from ddpjob_operator.cli.run_logs import LineSource
from ddpjob_operator.cli.screen import Screen
from ddpjob_operator.client import ClusterError, Document, Jobs
from ddpjob_operator.engine import Event

from .held_run import HeldRun
from .life import Life


class ShownRun:
    """A run whose output is shown: on a terminal with its progress, elsewhere as plain lines."""

    def __init__(self, screen: Screen, lines: LineSource, attempt: int, life: Life | None) -> None:
        """`life` is the held job, whose status has the progress of a program that prints none."""
        self._display = Display(screen, lines)
        self._attempt, self._life = attempt, life
        self._is_watched = life is not None
        self._began = datetime.now(UTC)
        self._closed = threading.Event()

    @classmethod
    def on(
        cls,
        run: HeldRun,
        jobs: Jobs,
        document: Document,
        lines: LineSource | None = None,
        screen: Screen | None = None,
    ) -> "ShownRun":
        """A run of the held job in `document`.

        `lines` are its output, if not those of `run`; `screen` is where it is shown, if not on stdout.
        """
        screen = screen or Screen()
        is_live = screen.is_terminal and not screen.is_dumb_terminal
        return cls(screen, lines or run, run.attempt, Life(jobs, document) if is_live else None)

    @contextmanager
    def following(self) -> Iterator[None]:
        """Shows the output while the block runs, and then the rest of it."""
        try:
            with self._display.following(lost=self._closed.set, status=self._status):
                yield
        finally:
            if self._life is not None:
                self._life.stop()

    def look(self) -> None:
        """Takes in what has happened to the job.

        Raises:
            BrokenPipeError: nobody reads the output any more.
        """
        if self._closed.is_set():
            raise BrokenPipeError
        if self._life is None or not self._is_watched:
            return
        try:
            for event in self._life.news(0.0):
                self._display.tell(event)
        except ClusterError:  # The run goes on without; if the job is gone, its supervisor says so.
            self._is_watched = False

    def tell(self, text: str) -> None:
        """Tells the user something beside the output."""
        if self._life is None:
            say(text)
        else:  # Only the display knows where on the terminal there is room.
            self._display.tell(Event(warning=False, reason="Notice", message=text))

    def _status(self) -> DDPJobStatus | None:
        """The job's status, as if it had begun with this run."""
        if self._life is None:
            return None
        status, began = self._life.job.status, self._began
        conditions = [
            one.model_copy(update={"last_transition_time": began}) if one.type == ConditionType.RUNNING else one
            for one in status.conditions
        ]
        return status.model_copy(update={"attempt": self._attempt, "start_time": began, "conditions": (*conditions,)})
