"""Writes rank 0's records as JSON lines. If the file cannot be written any more, training goes on without it.

Each event is in the file when `add` returns, unless the storage hangs. So no event is lost if the process is killed.
"""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ddpjob_rank.errors import ConfigError
from ddpjob_rank.recording.event import Event
from ddpjob_rank.recording.event_file import EventFile
from ddpjob_rank.recording.json_lines import JsonLines

PATIENCE_SECONDS, CLOSING_SECONDS = 0.1, 5.0
"""How long training waits until an event is written, and how long the end of a run waits for all events."""

RANKS = 64
"""The maximum number of ranks whose times are recorded."""


class Recorder:
    """Records the events of one start of a run; without a directory, records nothing."""

    def __init__(self, directory: Path | None, attempt: int) -> None:
        self._directory = directory
        self._attempt = attempt
        self._file: EventFile | None = None

    def begin(self, step: int, facts: Mapping[str, Any]) -> None:
        """Opens the file, and records that training starts after this step.

        Readers then ignore what earlier starts have recorded about later steps.

        Raises:
            ConfigError: The directory cannot be written.
        """
        if self._directory is None:
            return
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            lines = JsonLines(self._directory)
        except OSError as error:
            raise ConfigError(
                f"the directory for metrics {self._directory} cannot be written: {error.strerror};"
                " name another one with --log-dir"
            ) from error
        self._file = EventFile(
            lines.path, lambda: lines, timeout_seconds=PATIENCE_SECONDS, closing_seconds=CLOSING_SECONDS
        )
        self.add("started", step, **facts)

    def add(self, word: str, step: int, /, **values: Any) -> None:
        """Records an event that happened after `step`. Values must be valid JSON; None is left out."""
        if self._file is not None:
            known = {name: value for name, value in values.items() if value is not None}
            self._file.add(Event(word, time.time(), self._attempt, step, known))

    def close(self) -> None:
        """Closes the file; no event may follow."""
        file, self._file = self._file, None
        if file is not None:
            file.close()


def by_rank(seconds: Sequence[float]) -> dict[str, float]:
    """Times by rank. Of more than RANKS ranks, includes only RANKS, evenly spread from fastest to slowest."""
    known = sorted((time, rank) for rank, time in enumerate(seconds) if time)
    if len(known) > RANKS:
        known = [known[at * (len(known) - 1) // (RANKS - 1)] for at in range(RANKS)]
    return {str(rank): time for time, rank in sorted(known, key=lambda pair: pair[1])}
