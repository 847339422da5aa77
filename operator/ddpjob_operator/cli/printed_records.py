"""Turns the progress lines that a program printed into records, from which the report draws its curves."""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

from ddpjob_operator.view_model import PrintedStep, Record, Records, Report, Start, parse, printed_step
from ddpjob_operator.view_model.logged_progress import NUMBERS

from .run_logs import RunLogs


class PrintedLine(Protocol):
    """A line of a log."""

    @property
    def attempt(self) -> int:
        """The attempt in which it was printed."""
        ...

    @property
    def text(self) -> str:
        """The line without its end."""
        ...


EVENTS = frozenset({"progress", "evaluated", "saved"})
OTHER = NUMBERS | {"loss", "samples_per_second", "eta_seconds"}
MOST_ENTRIES = 20_000
"""If an attempt has more in its log, some are left out: nobody could see them."""


def printed(logs: Path, moment: datetime) -> Records:
    """The progress of rank 0, from its log. Logs have no times, so every record gets the time `moment`."""
    return records_of(log_of_rank_0(logs).lines(last=True), moment)


def log_of_rank_0(logs: Path) -> RunLogs:
    """The log of the node on which rank 0 runs, among the logs of a run."""
    return RunLogs(logs, nodes=frozenset({0}))


def records_of(lines: Iterable[PrintedLine], moment: datetime) -> Records:
    """The progress in rank 0's lines, as of `PrintedProgress`."""
    progress = PrintedProgress(moment)
    progress.take(lines)
    return progress.records


class PrintedProgress:
    """The progress in lines of rank 0, which come bit by bit. Every record gets the time `moment`.

    Losses in lines of any other form, such as `iter 10: loss 4.54`, count only if no line reports a loss.
    """

    def __init__(self, moment: datetime) -> None:
        self._moment = moment
        self._starts = list[Start]()
        self._losses = _PrintedLosses(moment)

    @property
    def records(self) -> Records:
        """The records of all lines so far."""
        reported = Records(self._starts)
        return reported if reported.has("loss") or not self._losses.starts else Records(self._losses.starts)

    def take(self, lines: Iterable[PrintedLine]) -> None:
        """Takes the next lines."""
        for line in lines:
            report = parse(line.text)
            if report is not None:
                self._take_report(line.attempt, report)
            elif said := printed_step(line.text):
                self._losses.take(line.attempt, said)

    def _take_report(self, attempt: int, report: Report) -> None:
        step, starts = report.number("step"), self._starts
        if report.event not in EVENTS or step is None or report.number("rank"):
            return
        entry = Record(self._moment, report.event, attempt, int(step), _values(report))
        if not starts or attempt != starts[-1].began.attempt or entry.step < _last(starts[-1]):
            before = max(0, entry.step - 1) if starts else 0
            starts.append(Start(Record(self._moment, "started", attempt, before, {"seen": True})))
        _append(starts[-1].entries, entry)


@dataclass
class _PrintedLosses:
    """Losses with their steps, in lines that are not reports.

    Many programs count the steps of each epoch anew. Then they are counted on, and the first epoch's end is the last
    step that was printed, or the total number of steps if the lines have it.
    """

    moment: datetime
    starts: list[Start] = field(default_factory=list)
    _before: int = 0
    """The steps of the epochs before."""
    _last: PrintedStep | None = None

    def take(self, attempt: int, said: PrintedStep) -> None:
        """Takes a loss that was printed in an attempt."""
        if not self.starts or attempt != self.starts[-1].began.attempt:
            self._before, self._last = 0, None
            step = max(0, said.step - 1) if self.starts else 0
            self.starts.append(Start(Record(self.moment, "started", attempt, step, {"seen": True})))
        # Lines of several ranks of a node may be in another order, but not by that much.
        if self._last and said.step <= self._last.step // 2:
            self._before += self._last.total or self._last.step
        self._last = said
        word = "evaluated" if said.evaluated else "progress"
        values = {"loss": float(said.loss)}
        _append(self.starts[-1].entries, Record(self.moment, word, attempt, self._before + said.step, values))


def _append(entries: list[Record], entry: Record) -> None:
    if len(entries) >= MOST_ENTRIES:
        del entries[::2]
    entries.append(entry)


def _last(start: Start) -> int:
    return start.entries[-1].step


def _values(said: Report) -> dict[str, Any]:
    numbers: dict[str, float] = {}
    for name, text in said.values.items():
        with suppress(ValueError):
            numbers[name] = float(text)
    metrics = {name: value for name, value in numbers.items() if name not in OTHER}
    loss = {"loss": numbers["loss"]} if "loss" in numbers else {}
    total = {"total_steps": said.total("step")}
    return loss | total | ({"metrics": metrics} if said.event == "progress" else metrics)
