"""The points of a curve that only the log of a program shows, read on at each look."""

import threading
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from ddpjob_operator.cli.cluster.pod_logs import PodLogs
from ddpjob_operator.cli.printed_records import PrintedProgress, log_of_rank_0
from ddpjob_operator.cli.run_logs import Line, Which, attempt_of
from ddpjob_operator.client import Document, JobPod, Jobs
from ddpjob_operator.local import RunDirectory
from ddpjob_operator.view_model import Records

if TYPE_CHECKING:
    from pathlib import Path

MOST_LINES = 20_000
"""How many lines at the end of a pod's log are read at the first look."""
MOST_RUNS = 8
"""So many runs on this machine are read on. The others are read anew when somebody looks at them again."""


class PrintedPoints:
    """The progress in the log of rank 0, whose next lines a function returns."""

    def __init__(self, lines: Callable[[], Iterable[Line]]) -> None:
        self._lines, self._progress = lines, PrintedProgress(datetime.now(UTC))
        self._reading = threading.Lock()

    def read(self) -> Records:
        """The records of all lines so far."""
        with self._reading:
            self._progress.take(self._lines())
            return self._progress.records


class PrintedHere:
    """The points of runs on this machine."""

    def __init__(self) -> None:
        self._runs = dict[tuple["Path", datetime | None], PrintedPoints]()

    def read(self, run: RunDirectory) -> Records:
        """The points of a run.

        Raises:
            OSError: its log cannot be read.
        """
        key = run.root, run.made  # A run may be made anew in the same directory.
        points = self._runs.pop(key, None) or PrintedPoints(log_of_rank_0(run.logs).lines)
        self._runs = dict([*self._runs.items()][1 - MOST_RUNS :]) | {key: points}
        return points.read()


class PrintedThere:
    """The points of a job on a cluster, whose log is followed until `close`."""

    def __init__(self, jobs: Jobs, document: Document, pods: Iterable[JobPod]) -> None:
        self._logs = PodLogs(jobs, document, {0}, which=Which(tail=MOST_LINES))
        self._attempt = 0
        self._points = PrintedPoints(lambda: map(self._in_attempt, self._logs.lines()))
        self._logs.follow(begun=[pod for pod in pods if pod.started])

    def read(self) -> Records:
        """The points that have arrived."""
        return self._points.read()

    def close(self) -> None:
        """Ends the reading."""
        self._logs.stop()

    def _in_attempt(self, line: Line) -> Line:
        """The line with its attempt, which after restarts in place is later than its pod's."""
        self._attempt = attempt_of(line.text, max(self._attempt, line.attempt))
        return replace(line, attempt=self._attempt)
