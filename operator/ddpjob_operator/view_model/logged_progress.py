"""Reads a program's progress from its output.

A line is a report if its first word is one of EVENTS and all others are `key=value` pairs, so any program can report
its progress: `progress step=120/450 loss=0.12`. The live display shows progress reports only in its table, so a line
that was mistaken for a report would not be shown at all.
"""

import re
from dataclasses import dataclass, field
from datetime import datetime

EVENTS = frozenset({"progress", "evaluated", "saved", "resumed", "finished"})
MOST_FIELDS = 32

FIELD = re.compile(r"([^=]+)=(.*)")
NUMBER = re.compile(r"([0-9]{1,15}(?:\.[0-9]+)?)(?:/([0-9]{1,15}(?:\.[0-9]+)?))?")
"""`120` or `120/450`; neither infinity nor NaN matches."""
LOSS = re.compile(
    r"""(?<![a-z])loss["']?(?: is)?\s{0,3}[:=]?\s{0,3}["']?(?:tensor\()?"""
    r"([-+]?(?>[0-9]{1,15}+(?:\.[0-9]{1,30}+)?(?:e[-+]?[0-9]{1,3}+)?|nan|inf))(?!\w|,[0-9]{3})",
    re.IGNORECASE,
)
"""A loss as programs print it: `loss 0.12`, `Train Loss: 0.12`, `'loss': 0.12`, `loss=tensor(0.12)`. It matches a
complete number or nothing: not the `1` of `1,234.5` or of `1.2K`."""
STEP = re.compile(
    r"""(?<![a-z])(?:global[_ ])?(?:step|iter|iteration)["']?\s{0,3}[:=#]?\s{0,3}[\["']?\s{0,9}"""
    r"([0-9]{1,15})(?:\s{0,3}/\s{0,9}([0-9]{1,15}))?(?![\w.])",
    re.IGNORECASE,
)
"""A step as programs print it beside a loss: `iter 10:`, `step 250:`, `Step [100/600]`, `'step': 7`."""
EVALUATED = re.compile(r"(?<![a-z])(?:val|valid|validation|eval|test)[_ ]loss", re.IGNORECASE)
"""The name of a loss in evaluation."""
LOOKED_AT = 1000
"""Number of characters at the beginning of a line that are searched for a loss."""
QUOTED = 80
"""A quoted line is cut off after this many characters."""
POSITIONS = frozenset({"step", "epoch"})
"""A progress report must have at least one of these fields."""
NUMBERS = POSITIONS | {"rank"}


@dataclass(frozen=True, slots=True)
class Report:
    """A progress line."""

    event: str
    values: dict[str, str]

    def number(self, key: str) -> float | None:
        """The value of a field, such as the 3 of `3/10`; None if the field is missing or not a number."""
        return self._number(key, 1)

    def total(self, key: str) -> float | None:
        """The total of a field, such as the 10 of `3/10`; None if it has no total."""
        return self._number(key, 2)

    def _number(self, key: str, group: int) -> float | None:
        found = NUMBER.fullmatch(self.values.get(key, ""))
        return float(found[group]) if found and found[group] else None


def parse(text: str) -> Report | None:
    """The report in a line of output; None if the line is not a report."""
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


@dataclass(frozen=True, slots=True)
class PrintedLoss:
    """A loss in a line that is not a report."""

    value: str
    line: str

    def __str__(self) -> str:
        line = self.line.strip()
        return f"{self.value} (from its log: {line if len(line) <= QUOTED else f'{line[:QUOTED]}…'})"


def printed_loss(text: str) -> PrintedLoss | None:
    """The first loss in a line; None if the line contains none."""
    # Most lines contain no loss, and for these the test for "oss" is fifty times as fast as the pattern.
    found = LOSS.search(text, 0, LOOKED_AT) if "oss" in text or "OSS" in text else None
    return PrintedLoss(found[1], text[:LOOKED_AT]) if found else None


@dataclass(frozen=True, slots=True)
class PrintedStep:
    """A loss of a known step, in a line that is not a report."""

    step: int
    total: int | None
    """The total number of steps, perhaps of an epoch; None if the line has none."""
    loss: str
    evaluated: bool
    """Whether it is a loss in evaluation."""


def printed_step(text: str) -> PrintedStep | None:
    """The loss of a step in a line such as nanoGPT's; None if the line does not have both.

    Example:
        `iter 10: loss 4.54, time 30ms` is the loss 4.54 of step 10 in training, and `step 250: train loss 2.5,
        val loss 2.6` the loss 2.6 of step 250 in evaluation.
    """
    if "oss" not in text and "OSS" not in text:
        return None
    at, evaluated = STEP.search(text, 0, LOOKED_AT), EVALUATED.search(text, 0, LOOKED_AT)
    loss = LOSS.search(text, max(0, evaluated.end() - len("loss")) if evaluated else 0, LOOKED_AT)
    if at is None or loss is None:
        return None
    return PrintedStep(int(at[1]), int(at[2]) if at[2] else None, loss[1], evaluated is not None)


@dataclass
class LoggedProgress:
    """The last progress report of each rank, and the last report of each other kind."""

    ranks: dict[int, Report] = field(default_factory=dict)
    attempt: int = 0
    """The attempt that the reports of `ranks` belong to."""
    stepped: datetime | None = None
    """When the last step of that attempt was read from a log; None if the line was older than this process."""
    printed_loss: PrintedLoss | None = None
    """The last loss in a line that is not a report."""
    evaluated: Report | None = None
    saved: Report | None = None
    finished: Report | None = None

    def hear(self, node: int, text: str, attempt: int = 0, now: datetime | None = None) -> Report | None:
        """Processes a line of a node's log; returns the report that it contains, if any. For `now` see `take`."""
        report = parse(text)
        if report is not None:
            self.take(node, report, attempt, now)
        else:
            self.printed_loss = printed_loss(text) or self.printed_loss
        return report

    def take(self, node: int, report: Report, attempt: int = 0, now: datetime | None = None) -> None:
        """Stores a report from a node's log. If ranks share a log, the report's field `rank` distinguishes them.

        `now` is None unless the line has just been written. Progress reports of earlier attempts are dropped.
        """
        match report.event:
            case "progress" if attempt >= self.attempt:
                self._take_progress(node, report, attempt, now)
            case "evaluated":
                self.evaluated = report
            case "saved" | "resumed":
                self.saved = report
            case "finished":
                self.finished = report

    def _take_progress(self, node: int, report: Report, attempt: int, now: datetime | None) -> None:
        if attempt > self.attempt:
            self.attempt, self.ranks, self.stepped = attempt, {}, None
        rank = report.number("rank")
        at = node if rank is None else int(rank)
        known = self.ranks.get(at)
        if now and (known is None or known.number("step") != report.number("step")):
            self.stepped = now
        self.ranks[at] = report

    @property
    def loss(self) -> str | None:
        """The last loss of the lowest rank that reports a loss; None if no rank does."""
        losses = ((rank, report.values.get("loss")) for rank, report in self.ranks.items())
        return min(((rank, loss) for rank, loss in losses if loss), default=(0, None))[1]

    @property
    def step(self) -> int | None:
        """The last step that all ranks have reported or saved. The ranks may be further: they may skip reports."""
        steps = [step for report in self.ranks.values() if (step := report.number("step")) is not None]
        saved = self.saved.number("step") if self.saved else None
        known = [step for step in (min(steps, default=None), saved) if step is not None]
        return int(max(known)) if known else None
