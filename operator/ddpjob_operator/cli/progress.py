"""What a trainer says of its progress, read from its log.

A line counts when its first word is one of EVENTS and the rest are `key=value` pairs, so any program can say how far
it is: `progress step=120/450 loss=0.12`.
"""

from dataclasses import dataclass, field

EVENTS = frozenset({"progress", "evaluated", "saved", "resumed", "finished"})


@dataclass(frozen=True, slots=True)
class Report:
    """One such line."""

    event: str
    values: dict[str, str]

    def number(self, key: str) -> float | None:
        """A value as a number; of `3/10` the first. None where there is no such number."""
        try:
            return float(self.values[key].partition("/")[0])
        except (KeyError, ValueError):
            return None

    def total(self, key: str) -> float | None:
        """The second number of `3/10`."""
        try:
            return float(self.values[key].partition("/")[2])
        except (KeyError, ValueError):
            return None


def parse(text: str) -> Report | None:
    """The report in a line of output, if it is one."""
    event, *pairs = text.split()[:32] or [""]
    if event not in EVENTS or not pairs or not all("=" in pair for pair in pairs):
        return None
    return Report(event, dict(pair.split("=", 1) for pair in pairs))


@dataclass
class Progress:
    """How far each rank is, and what was said last of the whole."""

    ranks: dict[int, Report] = field(default_factory=dict)
    evaluated: Report | None = None
    saved: Report | None = None
    finished: Report | None = None

    def take(self, rank: int, report: Report) -> None:
        """Takes note of a report. A rank may say which one it is where several write into one log."""
        match report.event:
            case "progress":
                said = report.number("rank")
                self.ranks[rank if said is None else int(said)] = report
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
