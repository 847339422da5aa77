"""What a trainer or a supervisor has recorded of a run: lines of JSON; those of a later start win.

A start that goes on from step s repeats the steps after s. What earlier starts have recorded of those no longer
counts; it is still true of its time.
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import accumulate
from pathlib import Path
from typing import Any

NAME = "metrics.jsonl"
"""What ddpjob-train records."""
SEEN_NAME = "progress.jsonl"
"""What the supervisor of any program records of its progress."""


LONGEST_LINE = 1 << 20
"""Bytes. Anybody may have written the file: what is larger, or deeper, than an entry can be is none."""
LONGEST_TEXT = 4096
DEEPEST = 8
LARGEST_COUNT = 2**53
LARGEST_NUMBER = 1e100
"""Axes cannot hold much larger ones."""


@dataclass(frozen=True, slots=True)
class Record:
    """One line."""

    time: datetime
    event: str
    attempt: int
    step: int
    values: Mapping[str, Any]
    """The whole line."""

    def number(self, name: str) -> float | None:
        """A value that is a number, and neither infinite nor NaN, nor larger than what can be drawn."""
        return _number(self.values.get(name))

    def numbers(self, name: str) -> dict[str, float]:
        """A value that is an object of numbers."""
        inner = self.values.get(name)
        known = inner if isinstance(inner, Mapping) else {}
        return {key: number for key, value in known.items() if (number := _number(value)) is not None}


@dataclass(slots=True)
class Start:
    """What was recorded from one start of the run until the next."""

    began: Record
    """It goes on from this one's step; its values describe the start."""
    entries: list[Record] = field(default_factory=list)

    @property
    def counted(self) -> bool:
        """Whether a supervisor counted its steps anew: where the program went on is unknown then."""
        return self.began.values.get("counted") is True

    @property
    def went_on(self) -> int | None:
        """The step from which training went on; None if that is unknown."""
        return None if self.counted else self.began.step

    def of(self, event: str) -> list[Record]:
        """Its entries of a kind."""
        return [entry for entry in self.entries if entry.event == event]


@dataclass(frozen=True, slots=True)
class Records:
    """All starts of a run, in their order."""

    starts: Sequence[Start] = ()

    def of(self, event: str) -> list[Record]:
        """The entries of a kind that count, by step: one for each."""
        found: dict[int, Record] = {}
        for start, limit in zip(self.starts, self._limits(), strict=True):
            found |= {entry.step: entry for entry in start.of(event) if entry.step <= limit}
        return [found[step] for step in sorted(found)]

    @property
    def seen(self) -> bool:
        """Whether a supervisor recorded it, about once a second: it does not know at which step a start began."""
        return any(start.began.values.get("seen") for start in self.starts)

    def has(self, name: str) -> bool:
        """Whether training reported such a number."""
        return any(entry.number(name) is not None for entry in self.of("progress"))

    @property
    def last(self) -> Record | None:
        """What was recorded last."""
        entries = (entry for start in self.starts for entry in (start.began, *start.entries))
        return max(entries, key=lambda entry: entry.time, default=None)

    @property
    def trained_anew(self) -> int:
        """Steps that were trained, lost, and trained again."""
        reached = (max((entry.step for entry in start.entries), default=0) for start in self.starts)
        return sum(max(0, step - int(min(step, limit))) for step, limit in zip(reached, self._limits(), strict=True))

    def _limits(self) -> list[float]:
        """For each start the step up to which its entries count."""
        later = [math.inf if start.went_on is None else start.went_on for start in self.starts[:0:-1]]
        return [*accumulate(later, min, initial=math.inf)][::-1][: len(self.starts)]


def read(file: Path) -> Records:
    """The contents of a file. Lines that are not entries, such as one whose writer died within it, are skipped."""
    starts: list[Start] = []
    latest: dict[int, Start] = {}
    for entry in _entries(file):
        if entry.event == "started":
            latest[entry.attempt] = Start(entry)
            starts.append(latest[entry.attempt])
        elif entry.attempt in latest:  # By attempt, not by position: a process of an earlier attempt may still write.
            latest[entry.attempt].entries.append(entry)
    return Records(starts)


def _entries(file: Path) -> Iterator[Record]:
    for line in _lines(file):
        try:
            said = _bounded(json.loads(line))
            time = datetime.fromisoformat(said["time"])
            attempt, step = _count(said["attempt"]), _count(said["step"])
            if time.tzinfo is not None and isinstance(said["event"], str):
                yield Record(time.astimezone(UTC), said["event"], attempt, step, said)
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
            continue


def _lines(file: Path) -> Iterator[bytes]:
    """Its lines, but for those that are too long to be entries."""
    with file.open("rb") as content:
        whole = True
        while part := content.readline(LONGEST_LINE):
            if whole and (len(part) < LONGEST_LINE or part.endswith(b"\n")):
                yield part
            whole = part.endswith(b"\n")


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
    """What may be shown of a value: texts that can be encoded, and no more levels than anybody reads."""
    if isinstance(value, str):
        return value[:LONGEST_TEXT].encode(errors="replace").decode()
    if isinstance(value, Mapping) and depth < DEEPEST:
        return {_bounded(key): _bounded(inner, depth + 1) for key, inner in value.items()}
    if isinstance(value, list) and depth < DEEPEST:
        return [_bounded(inner, depth + 1) for inner in value]
    return "…" if isinstance(value, Mapping | list) else value
