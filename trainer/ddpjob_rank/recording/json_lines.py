"""Events as JSON, one object in each line, appended: several starts of a run follow each other in one file."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ddpjob_rank.moments import rfc3339

from .appending import AppendedFile
from .event import Event

NAME = "metrics.jsonl"


class JsonLines:
    """The file in a directory.

    Raises:
        OSError: It cannot be written.
    """

    def __init__(self, directory: Path, name: str = NAME) -> None:
        self.path = directory / name
        self._file = AppendedFile(self.path)
        if self._file.last_byte() not in (b"", b"\n"):
            self._file.append(b"\n")  # A writer that died within its last line must not spoil the next one.

    def write(self, event: Event) -> None:
        """Adds a line."""
        whole = {"time": rfc3339(event.time), "event": event.word, "attempt": event.attempt, "step": event.step}
        line = json.dumps({**whole, **in_json(event.values), **whole}, default=str, separators=(",", ":"))
        self._file.append(f"{line}\n".encode())

    def close(self) -> None:
        """Closes the file."""
        self._file.close()


def in_json(value: Any) -> Any:
    """JSON has no form for a non-finite number, so this is the one that protobuf uses in JSON."""
    if isinstance(value, Mapping):
        return {name: in_json(inner) for name, inner in value.items()}
    if not isinstance(value, float) or math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
