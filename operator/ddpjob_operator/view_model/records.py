"""The records that a trainer or a supervisor has written about a run.

A start that goes on from step s repeats the steps after s. Records of these steps from earlier starts are then
excluded from the results of training, but not from its course over time.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import accumulate
from types import MappingProxyType
from typing import Any

LONGEST_TEXT = 4096
DEEPEST = 8
LARGEST_COUNT = 2**53
LARGEST_NUMBER = 1e100
"""Larger numbers are left out, because the axes of a figure cannot show them."""


@dataclass(frozen=True, slots=True)
class Record:
    """One line of a file of records."""

    time: datetime
    event: str
    attempt: int
    step: int
    values: Mapping[str, Any]
    """All fields of the line."""

    def number(self, name: str) -> float | None:
        """The field `name` as a number; None if it is not a finite number of at most LARGEST_NUMBER."""
        return _number(self.values.get(name))

    def numbers(self, name: str) -> dict[str, float]:
        """The numbers in the field `name`, which should be an object; empty if it is not."""
        inner = self.values.get(name)
        known = inner if isinstance(inner, Mapping) else {}
        return {key: number for key, value in known.items() if (number := _number(value)) is not None}


@dataclass(slots=True)
class Start:
    """The records from one start of the run to the next."""

    began: Record
    """The record of the start. Its step is the one from which training goes on, and its values describe the start."""
    entries: list[Record] = field(default_factory=list)

    @property
    def counted(self) -> bool:
        """Whether a supervisor counted the steps after this start, so that the program's own step is unknown."""
        return self.began.values.get("counted") is True

    @property
    def resumed_step(self) -> int | None:
        """The step from which training went on; None if it is unknown."""
        return None if self.counted else self.began.step

    @property
    def trained(self) -> bool:
        """Whether a step was finished after this start. If not, it has repeated nothing, whatever its first step."""
        return any(entry.step > self.began.step for entry in self.entries)

    def of(self, event: str) -> list[Record]:
        """The entries of one event."""
        return [entry for entry in self.entries if entry.event == event]


@dataclass(frozen=True, slots=True)
class Records:
    """All starts of a run, in the order in which they were recorded."""

    starts: Sequence[Start] = ()

    def of(self, event: str) -> list[Record]:
        """The entries of one event, ordered by step. If a step was repeated, only its last entry is included."""
        found: dict[int, Record] = {}
        for start, limit in zip(self.starts, self._limits(), strict=True):
            found |= {entry.step: entry for entry in start.of(event) if entry.step <= limit}
        return [found[step] for step in sorted(found)]

    @property
    def seen(self) -> bool:
        """Whether the records were made by watching the program from outside, so that the first steps are guesses."""
        return any(start.began.values.get("seen") for start in self.starts)

    def has(self, name: str) -> bool:
        """Whether a progress record has a number `name`."""
        return any(entry.number(name) is not None for entry in self.of("progress"))

    @property
    def last(self) -> Record | None:
        """The latest record of all starts."""
        entries = (entry for start in self.starts for entry in (start.began, *start.entries))
        return max(entries, key=lambda entry: entry.time, default=None)

    def repeated_steps(self, reached_by: Mapping[int, int] = MappingProxyType({})) -> int:
        """How many steps were lost in interruptions and trained again.

        `reached_by` are the last steps that attempts are known to have finished, by attempt. The last steps before a
        failure may not have been recorded.
        """
        reached = (
            max((reached_by.get(start.began.attempt, 0) * start.trained, *(entry.step for entry in start.entries)))
            for start in self.starts
        )
        return sum(max(0, step - int(min(step, limit))) for step, limit in zip(reached, self._limits(), strict=True))

    @property
    def last_trained(self) -> Start | None:
        """The last start after which a step was finished."""
        return next((start for start in reversed(self.starts) if start.trained), None)

    def _limits(self) -> list[float]:
        """For each start, the last step whose entries count, because no later start has repeated this step."""
        later = [
            start.resumed_step if start.trained and start.resumed_step is not None else math.inf
            for start in self.starts[:0:-1]
        ]
        return [*accumulate(later, min, initial=math.inf)][::-1][: len(self.starts)]


def collected(values: Iterable[Any]) -> Records:
    """The records among values that were read as JSON, in the order in which they were written."""
    starts: list[Start] = []
    latest: dict[int, Start] = {}
    for entry in _entries(values):
        if entry.event == "started":
            latest[entry.attempt] = Start(entry)
            starts.append(latest[entry.attempt])
        elif entry.attempt in latest:
            # Not necessarily the last start, because a process of an earlier attempt may still be writing.
            latest[entry.attempt].entries.append(entry)
    return Records(starts)


def _entries(values: Iterable[Any]) -> Iterator[Record]:
    for value in values:
        try:
            entry = _bounded(value)
            time = datetime.fromisoformat(entry["time"])
            attempt, step = _count(entry["attempt"]), _count(entry["step"])
            if time.tzinfo is not None and isinstance(entry["event"], str):
                yield Record(time.astimezone(UTC), entry["event"], attempt, step, entry)
        except (ValueError, KeyError, TypeError, OverflowError):
            continue


def _count(value: Any) -> int:
    count = int(value)
    if not 0 <= count <= LARGEST_COUNT:
        raise ValueError(value)
    return count


def _number(value: Any) -> float | None:
    if not isinstance(value, int | float) or isinstance(value, bool) or not abs(value) <= LARGEST_NUMBER:
        return None
    return float(value) if abs(value) >= 1 / LARGEST_NUMBER else 0.0


def _bounded(value: Any, depth: int = 0) -> Any:
    """Limits a value: cuts off long texts, makes them encodable, and replaces levels below DEEPEST by `…`."""
    if isinstance(value, str):
        return value[:LONGEST_TEXT].encode(errors="replace").decode()
    if isinstance(value, Mapping) and depth < DEEPEST:
        return {_bounded(key): _bounded(inner, depth + 1) for key, inner in value.items()}
    if isinstance(value, list) and depth < DEEPEST:
        return [_bounded(inner, depth + 1) for inner in value]
    return "…" if isinstance(value, Mapping | list) else value
