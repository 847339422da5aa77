"""Draws rows and details of jobs as text: for a screen, and for a pipe."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from math import inf, isfinite
from operator import itemgetter
from typing import Any

from ddpjob_operator.api.words import age, counted, enumerated
from ddpjob_operator.view_model import Branch, Curve, JobRow, Origin, RankRow, TimeAxis, pace, told_states

FEW = ("NAME", "STATE", "PROGRESS", "ETA", "LOSS", "RESTARTS", "AGE", "WHY")
"""The columns for which 80 characters suffice."""
ALL = (
    *("WHERE", "NAME", "STATE", "READY", "PROGRESS", "ETA", "SAMPLES/S", "LOSS", "RESTARTS", "GOODPUT", "AGE"),
    *("ENDED", "WHY"),
)
WIDE = 140
"""How wide a terminal has to be for all columns."""
OF_RANKS = ("RANK", "NODE", "STATE", "STEP", "STEP TIME", "OWN PART", "SLOWDOWN", "MEMORY", "DOES")
BLOCKS = "▁▂▃▄▅▆▇█"
BAR = 24
"""The width of the longest bar of a tree."""
GIB = 1 << 30
MOST_STATES = 6

CELLS: dict[str, Callable[[JobRow, datetime], str]] = {
    "WHERE": lambda row, _: row.key.namespace if row.key.origin == Origin.CLUSTER else row.key.origin.value,
    "NAME": lambda row, _: row.name,
    "STATE": lambda row, _: row.state,
    "READY": lambda row, _: row.ready,
    "PROGRESS": lambda row, _: row.progress,
    "ETA": lambda row, _: row.eta,
    "SAMPLES/S": lambda row, _: "" if row.samples_per_second is None else f"{row.samples_per_second:,.0f}",
    "LOSS": lambda row, _: row.loss,
    "RESTARTS": lambda row, _: f"{row.restarts}{f'+{row.disruptions}' if row.disruptions else ''}",
    "GOODPUT": lambda row, _: "" if row.goodput is None else f"{row.goodput:.0%}",
    "AGE": lambda row, now: age(row.made, now),
    "ENDED": lambda row, now: age(row.ended, now) if row.ended else "",
    "WHY": lambda row, _: row.why,
}
"""The cell of each column."""
LARGEST_FIRST = frozenset({"PROGRESS", "SAMPLES/S", "RESTARTS", "GOODPUT"})
"""The columns of which the largest figures are looked for."""
ORDERS: dict[str, Callable[[JobRow], float | None]] = {
    "PROGRESS": lambda row: row.percent,
    "ETA": lambda row: row.eta_seconds,
    "SAMPLES/S": lambda row: row.samples_per_second,
    "LOSS": lambda row: _number(row.loss),
    "RESTARTS": lambda row: row.restarts + row.disruptions,
    "GOODPUT": lambda row: row.goodput,
    "AGE": lambda row: None if row.made is None else -row.made.timestamp(),
    "ENDED": lambda row: None if row.ended is None else -row.ended.timestamp(),
}
"""By what a column sorts, if not by its cells. Unknown values come last."""


def columns_for(width: int) -> tuple[str, ...]:
    """The columns of the table of jobs on a terminal of this width, in cells."""
    return ALL if width >= WIDE else FEW


def cells(row: JobRow, columns: Sequence[str], now: datetime) -> tuple[str, ...]:
    """The cells of a job."""
    return tuple(CELLS[column](row, now) for column in columns)


def sorted_by(column: str, rows: Iterable[JobRow], now: datetime, *, turned: bool = False) -> list[JobRow]:
    """Rows in the order of a column, those whose value is unknown at the end; `turned`: the other way round."""
    value: Callable[[JobRow], Any] = ORDERS.get(column) or (lambda row: CELLS[column](row, now).lower())
    values = [(value(row), row) for row in rows]
    known = [one for one in values if one[0] not in {None, ""}]
    known.sort(key=itemgetter(0), reverse=turned != (column in LARGEST_FIRST))
    return [row for _, row in known] + [row for found, row in values if found in {None, ""}]


def matches(row: JobRow, words: str) -> bool:
    """Whether a row has all these words in its name, its place, its state or its message, in any case."""
    text = f"{row.name} {row.key.namespace} {row.key.origin} {row.state} {row.why} {row.message}".lower()
    return all(word in text for word in words.lower().split())


def shortened(name: str, width: int) -> str:
    """A name in at most so many characters: without its middle, because its end often tells it apart.

    Example:
        >>> shortened("resnet50-imagenet-lr-0.3", 16)
        'resnet50…-lr-0.3'
    """
    if len(name) <= width:
        return name
    end = (width - 1) // 2
    return f"{name[: width - 1 - end]}…{name[-end:]}"


def summary(rows: Sequence[JobRow]) -> str:
    """How many jobs there are, and in which states: `3 jobs: 1 Failed and 2 Running`. Trouble is named first."""
    states = told_states(rows)[:MOST_STATES]
    told = enumerated(f"{number} {state}" for state, number in states) if states else ""
    return f"{counted(len(rows), 'job')}{told and f': {told}'}"


def tree(branches: Sequence[Branch]) -> Iterator[str]:
    """A start as a tree: a line with the seconds of each part, and a bar beside them."""
    longest = max((branch.seconds or 0.0 for branch in branches), default=0.0) or 1.0
    for branch in branches:
        stem = "└─" if branch is branches[-1] else "├─"
        if branch.seconds is None:
            yield f"{stem} {branch.step:<12} not begun"
            continue
        bar = "█" * round(BAR * branch.seconds / longest)
        yield f"{stem} {branch.step:<12} {pace(branch.seconds):>8}  {bar}{'' if branch.over else '…'}".rstrip()


def time_axis(axis: TimeAxis, width: int) -> Iterator[str]:
    """Incidents on an axis of this width, in cells, by their numbers; below it when it begins and ends."""
    line = ["─"] * (width - 2)
    for incident in axis.incidents:
        at = round(axis.place(incident) * (len(line) - 1))
        line[at] = str(incident.number % 10) if line[at] == "─" else "*"
    yield f"├{''.join(line)}┤"
    begin, end = (f"{moment.astimezone(UTC):%H:%M:%S}" for moment in (axis.began, axis.until))
    yield f"{begin}{end:>{width - len(begin)}}"


def told_incidents(axis: TimeAxis, now: datetime) -> Iterator[str]:
    """A line for each incident, with its number."""
    for one in axis.incidents:
        step = "" if one.step is None else f" after step {one.step}"
        resumed = "" if one.resumed is None else f", went on from step {one.resumed}"
        when = f"{age(one.time, now)} ago, attempt {one.attempt}"
        said = f": {one.message}" if one.message else ""
        yield f"{one.number}  {when}, {one.cause}{step}{resumed}{said}"


def sparkline(curve: Curve, width: int) -> str:
    """A curve in one line of this width, in cells, with its first, smallest and last value."""
    values = [value for _, value in curve.points]
    told = f" {values[0]:.4g} → {values[-1]:.4g}, lowest {min(values):.4g}"
    room = max(1, width - len(told))
    size = max(1, -(-len(values) // room))
    means = [sum(part) / len(part) for part in (values[at : at + size] for at in range(0, len(values), size))]
    lowest, whole = min(means), (max(means) - min(means)) or 1.0
    drawn = "".join(BLOCKS[int((mean - lowest) / whole * (len(BLOCKS) - 1))] for mean in means)
    return f"{drawn}{told}"


def rank_cells(row: RankRow) -> tuple[str, ...]:
    """The cells of a rank, for OF_RANKS."""
    return (
        row.ranks,
        f"{row.node} {row.node_name}".rstrip(),
        row.state,
        "" if row.step is None else str(row.step),
        _seconds(row.step_seconds),
        _seconds(row.own_seconds),
        "" if row.slowdown is None else f"{row.slowdown:g} x",
        "" if row.memory_bytes is None else f"{row.memory_bytes / GIB:.1f} GiB",
        ", ".join(filter(None, (row.activity.lower(), row.slowed, row.transport))),
    )


def _number(text: str) -> float | None:
    with suppress(ValueError):
        number = float(text)
        return number if isfinite(number) else inf
    return None


def _seconds(seconds: float | None) -> str:
    return "" if seconds is None else pace(seconds)


def whom_others_wait_for(row: RankRow | None) -> str:
    """The slowest rank, in words; empty if it is not known."""
    if row is None:
        return ""
    who = f"{'ranks' if row.of_node else 'rank'} {row.ranks} on node {row.node} {row.node_name}".rstrip()
    slow = None if row.slowdown is None else f"{row.slowdown:g} x the usual time"
    return f"{who}: {slow or f'its own part takes {_seconds(row.own_seconds)}'}"


def joined(lines: Iterable[str]) -> str:
    """Lines as one text."""
    return "\n".join(lines)
