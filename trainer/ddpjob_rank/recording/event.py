"""One thing that has happened in training."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Event:
    """What has happened, when, and after which step."""

    word: str
    """As in the lines of the log: `progress`, `evaluated`, `saved`, `finished`; and `started`, `timed`."""
    time: float
    """Seconds of the epoch."""
    attempt: int
    step: int
    values: Mapping[str, Any]
    """The event's data. Several numbers of one kind are a mapping by name."""
