"""Events as JSON, one object in each line, appended: several starts of a run follow each other in one file."""

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ddpjob_trainer.moments import rfc3339

from .event import Event

NAME = "metrics.jsonl"


class JsonLines:
    """The file in a directory.

    Raises:
        OSError: It cannot be written.
    """

    def __init__(self, directory: Path) -> None:
        self.path = directory / NAME
        self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        if not self._ends_well():
            self._append(b"\n")  # A writer that died within its last line must not spoil the next one.

    def write(self, event: Event) -> None:
        """Adds a line."""
        whole = {"time": rfc3339(event.time), "event": event.word, "attempt": event.attempt, "step": event.step}
        line = json.dumps({**whole, **_in_json(event.values), **whole}, default=str, separators=(",", ":"))
        self._append(f"{line}\n".encode())

    def close(self) -> None:
        """Lets go of the file."""
        os.close(self._file)

    def _append(self, content: bytes) -> None:
        while content:
            content = content[os.write(self._file, content) :]

    def _ends_well(self) -> bool:
        size = os.fstat(self._file).st_size
        return size == 0 or os.pread(self._file, 1, size - 1) == b"\n"


def _in_json(value: Any) -> Any:
    """JSON has no word for a number that has gone astray, so it is the one that protobuf has in JSON."""
    if isinstance(value, Mapping):
        return {name: _in_json(inner) for name, inner in value.items()}
    if not isinstance(value, float) or math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
