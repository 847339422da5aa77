"""Writes events as JSON Lines. Lines are appended, so that one file contains all starts of a run."""

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
    """The file `name` in a directory.

    Raises:
        OSError: The file cannot be written.
    """

    def __init__(self, directory: Path, name: str = NAME) -> None:
        self.path = directory / name
        self._file = AppendedFile(self.path)
        if self._file.last_byte() not in (b"", b"\n"):
            # Otherwise a line that an earlier writer left unfinished would spoil the next line.
            self._file.append(b"\n")

    def write(self, event: Event) -> None:
        """Appends an event as a line."""
        line = json.dumps(fields_of(event), default=str, separators=(",", ":"))
        self._file.append(f"{line}\n".encode())

    def close(self) -> None:
        """Closes the file."""
        self._file.close()


def fields_of(event: Event) -> dict[str, Any]:
    """The event's fields in JSON. The event's data cannot replace the first four fields."""
    whole = {"time": rfc3339(event.time), "event": event.word, "attempt": event.attempt, "step": event.step}
    return {**whole, **in_json(event.values), **whole}


def in_json(value: Any) -> Any:
    """Replaces numbers that are not finite with strings, as in protobuf's JSON, because JSON has no such numbers."""
    if isinstance(value, Mapping):
        return {name: in_json(inner) for name, inner in value.items()}
    if not isinstance(value, float) or math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
