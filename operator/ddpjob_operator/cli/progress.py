"""What a trainer says about its progress, read from its log.

A line counts when its first word is one of EVENTS and the rest are `key=value` pairs, so any program can say how far
it is: `progress step=120/450 loss=0.12`. Such a line is shown in the live display instead, so one that only looks
like it must not count: it would not be seen at all.
"""

import re
from dataclasses import dataclass, field

EVENTS = frozenset({"progress", "evaluated", "saved", "resumed", "finished"})
MOST_FIELDS = 32

FIELD = re.compile(r"([^=]+)=(.*)")
NUMBER = re.compile(r"([0-9]{1,15}(?:\.[0-9]+)?)(?:/([0-9]{1,15}(?:\.[0-9]+)?))?")
"""`120` or `120/450`, and none that is infinite or not a number."""
POSITIONS = frozenset({"step", "epoch"})
"""Progress has one of these at least."""
NUMBERS = POSITIONS | {"rank"}


@dataclass(frozen=True, slots=True)
class Report:
    """A progress line."""

    event: str
    values: dict[str, str]

    def number(self, key: str) -> float | None:
        """A value as a number; of `3/10` the first. None if there is no such number."""
        return self._number(key, 1)

    def total(self, key: str) -> float | None:
        """The second number of `3/10`."""
        return self._number(key, 2)

    def _number(self, key: str, group: int) -> float | None:
        found = NUMBER.fullmatch(self.values.get(key, ""))
        return float(found[group]) if found and found[group] else None


def parse(text: str) -> Report | None:
    """The report in a line of output, if it is one."""
    event, *pairs = text.split(maxsplit=MOST_FIELDS + 1) or [""]
    if event not in EVENTS or not 1 <= len(pairs) <= MOST_FIELDS:
        return None
    fields = [FIELD.fullmatch(pair) for pair in pairs]
    report = Report(event, {found[1]: found[2] for found in fields if found})
    if not all(fields) or (event == "progress" and not _tells_how_far(report)):
        return None
    return report


def _tells_how_far(report: Report) -> bool:
    numbers = NUMBERS & report.values.keys()
    return bool(POSITIONS & numbers) and all(report.number(key) is not None for key in numbers)


@dataclass
class LoggedProgress:
    """How far each rank is, and what was last said about the whole."""

    ranks: dict[int, Report] = field(default_factory=dict)
    evaluated: Report | None = None
    saved: Report | None = None
    finished: Report | None = None

    def take(self, node: int, report: Report) -> None:
        """Takes note of a report in a node's log. A rank may say which one it is if several write into one."""
        match report.event:
            case "progress":
                said = report.number("rank")
                self.ranks[node if said is None else int(said)] = report
            case "evaluated":
                self.evaluated = report
            case "saved" | "resumed":
                self.saved = report
            case "finished":
                self.finished = report

    @property
    def step(self) -> int | None:
        """The last step that every rank is known to have finished: a rank does not tell of each."""
        told = [step for report in self.ranks.values() if (step := report.number("step")) is not None]
        saved = self.saved.number("step") if self.saved else None
        known = [step for step in (min(told, default=None), saved) if step is not None]
        return int(max(known)) if known else None
