"""Turns the progress lines that a program printed into records, from which the report draws its curves."""

from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

from ddpjob_operator.view_model import Record, Records, Report, Start, parse
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


def printed(logs: Path, moment: datetime) -> Records:
    """The progress of rank 0, from its log. Logs have no times, so every record gets the time `moment`."""
    return records_of(RunLogs(logs, nodes=frozenset({0})).lines(last=True), moment)


def records_of(lines: Iterable[PrintedLine], moment: datetime) -> Records:
    """The progress in rank 0's lines. Every record gets the time `moment`."""
    starts: list[Start] = []
    for line in lines:
        report = parse(line.text)
        step = report.number("step") if report else None
        if report is None or report.event not in EVENTS or step is None or report.number("rank"):
            continue
        entry = Record(moment, report.event, line.attempt, int(step), _values(report))
        if not starts or line.attempt != starts[-1].began.attempt or entry.step < _last(starts[-1]):
            before = max(0, entry.step - 1) if starts else 0
            starts.append(Start(Record(moment, "started", line.attempt, before, {"seen": True})))
        starts[-1].entries.append(entry)
    return Records(starts)


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
