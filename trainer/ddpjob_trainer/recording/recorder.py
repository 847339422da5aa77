"""What rank 0 records, as JSON lines. If they cannot be written any more, training goes on without them.

Each event is in the file when `add` returns, unless storage hangs: a run may end in any way, at any moment.
"""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ddpjob_rank.console import warn
from ddpjob_rank.errors import ConfigError
from ddpjob_rank.recording.event import Event
from ddpjob_rank.recording.json_lines import JsonLines

from .event_queue import EventQueue

RANKS = 64
"""How many ranks' times are recorded."""


class Recorder:
    """Records the events of one start of a run; without a directory, none."""

    def __init__(self, directory: Path | None, attempt: int) -> None:
        self._directory = directory
        self._attempt = attempt
        self._file: JsonLines | None = None
        self._queue: EventQueue | None = None

    def begin(self, step: int, facts: Mapping[str, Any]) -> None:
        """Training is about to start after this step; what earlier starts recorded of later steps no longer counts.

        Raises:
            ConfigError: The directory cannot be written.
        """
        if self._directory is None:
            return
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            self._file = JsonLines(self._directory)
        except OSError as error:
            raise ConfigError(
                f"the directory for metrics {self._directory} cannot be written: {error.strerror};"
                " name another one with --log-dir"
            ) from error
        self._queue = EventQueue(self._write)
        self.add("started", step, **facts)

    def add(self, word: str, step: int, /, **values: Any) -> None:
        """Something has happened after this step. Values are JSON's; None is left out."""
        if self._queue is None:
            return
        known = {name: value for name, value in values.items() if value is not None}
        self._queue.add(Event(word, time.time(), self._attempt, step, known))

    def _write(self, event: Event) -> None:
        if self._file is None:
            return
        try:
            self._file.write(event)
        except OSError as error:
            warn(f"{self._file.path} is no longer written: {error.strerror}. Training goes on without it")
            self._file.close()
            self._file = None

    def close(self) -> None:
        """Nothing more will happen."""
        queue, self._queue = self._queue, None
        if queue is not None and queue.close() and self._file is not None:
            self._file.close()


def by_rank(seconds: Sequence[float]) -> dict[str, float]:
    """Times of ranks by their numbers; if there are too many ranks for a line, some from fastest to slowest."""
    known = sorted((time, rank) for rank, time in enumerate(seconds) if time)
    if len(known) > RANKS:
        known = [known[at * (len(known) - 1) // (RANKS - 1)] for at in range(RANKS)]
    return {str(rank): time for time, rank in sorted(known, key=lambda one: one[1])}
