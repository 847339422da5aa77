"""An event in training."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Event:
    """An event in training: what happened, when, and after which step."""

    word: str
    """The event's kind. Lines of the log begin with the same words: `progress`, `evaluated`, `saved`, `finished`; two
    kinds are not logged, `started` and `timed`."""
    time: float
    """Seconds since the epoch."""
    attempt: int
    step: int
    values: Mapping[str, Any]
    """The event's data. Several numbers of one kind are a mapping by name."""
