"""What a trainer or a supervisor has recorded of a run: lines of JSON; those of a later start win.

A start that goes on from step s repeats the steps after s. What earlier starts have recorded of those no longer
counts; it is still true of its time.
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

NAME = "metrics.jsonl"
"""What ddpjob-train records."""
SEEN_NAME = "progress.jsonl"
"""What the supervisor of any program records of its progress."""


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
        """A value that is a number, and neither infinite nor NaN."""
        value = self.values.get(name)
        finite = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        return float(value) if finite and value is not None else None

    def numbers(self, name: str) -> dict[str, float]:
        """A value that is an object of numbers."""
        inner = self.values.get(name)
        known = inner if isinstance(inner, Mapping) else {}
        return {key: float(value) for key, value in known.items() if isinstance(value, int | float)}


@dataclass(slots=True)
class Start:
    """What was recorded from one start of the run until the next."""

    began: Record
    """It goes on from this one's step; its values describe the start."""
    entries: list[Record] = field(default_factory=list)

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
        begins = [start.began.step for start in self.starts]
        return [min(begins[index + 1 :], default=math.inf) for index in range(len(begins))]


def read(file: Path) -> Records:
    """The contents of a file. Lines that are not entries, such as one whose writer died within it, are skipped."""
    starts: list[Start] = []
    latest: dict[int, Start] = {}
    for entry in _entries(file):
        if entry.event == "started":
            latest[entry.attempt] = Start(entry)
            starts.append(latest[entry.attempt])
        elif entry.attempt in latest:  # By its attempt, not by place: a start that is cut off may still write.
            latest[entry.attempt].entries.append(entry)
    return Records(starts)


def _entries(file: Path) -> Iterator[Record]:
    with file.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            try:
                said = json.loads(line)
                time = datetime.fromisoformat(said["time"])
                yield Record(time, said["event"], int(said["attempt"]), int(said["step"]), said)
            except (ValueError, KeyError, TypeError):
                continue
