"""Tables of jobs, printed as a whole or row by row as jobs change."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from rich.cells import cell_len
from rich.text import Text

from ddpjob_operator.api import State
from ddpjob_operator.api.words import age
from ddpjob_operator.text import one_line
from ddpjob_operator.view_model import JobRow

from .phrases import style_of
from .screen import LEAST, Screen

COLUMNS = ("NAME", "STATE", "READY", "PROGRESS", "ETA", "RESTARTS", "AGE", "MESSAGE")
DELETED = "Deleted"
"""Shown as the state of a job that no longer exists."""
GAP = 3
"""Cells between columns."""
NAMES = {"NAMESPACE", "NAME"}
"""Columns that are narrowed on a terminal if the table is too wide."""
NARROWEST = 10
"""Such a column stays at least so wide, in cells."""
BELOW = 4
"""Cells before the last column if it stands below the others."""
UNLIMITED = 100_000
"""Width of the last column if the output is not a terminal."""

Row = tuple[str, ...]
Fit = Callable[[str, int], list[str]]
"""A function that splits or shortens a text of the last column into lines of at most the given number of cells."""


def folded(text: str, room: int) -> list[str]:
    """The whole text, wrapped into several lines."""
    return [line.plain for line in Screen().folded(text, room)] or [""]


def path_end(text: str, room: int) -> list[str]:
    """The end of a path, which is its most informative part, cut at a slash if possible."""
    if cell_len(text) <= room:
        return [text]
    end = text
    while cell_len(end) >= room:
        end = end[1:]
    return [f"…{end[max(0, end.find('/')) :]}"]


def whole(text: str, _room: int) -> list[str]:
    """The whole text in one line, of any length."""
    return [text]


def beginning(text: str, room: int) -> list[str]:
    """As much of a text as fits."""
    return [text[:room]]


def tabulate(columns: Row, rows: Sequence[Row], fit: Fit = folded, least: int = LEAST) -> None:
    """Prints a table. A pipe gets a whole line for each row, and so does a terminal if `fit` is `whole`.

    On a terminal, `fit` fits the last column into the remaining width. If that is less than `least` cells, columns of
    names get narrower, and a longer name stays whole: its row goes on in the next line. If that does not help, the
    last column stands below the others.
    """
    _print(columns, rows, widths=_widths(columns, [columns, *rows]), header=True, fit=fit, least=least)


def row(job: JobRow, now: datetime) -> Row:
    """The cells of a job for COLUMNS, at the time `now`."""
    restarts = str(job.restarts)
    return (job.name, job.state, job.ready, job.progress, job.eta, restarts, age(job.made, now), job.message)


@dataclass
class Growing:
    """A table that gets a new row whenever a job is created, changed or deleted."""

    columns: Row
    _rows: dict[str, Row] = field(default_factory=dict)
    _widths: dict[str, int] = field(default_factory=lambda: {"STATE": max(map(len, State))})
    """Width of each column's widest cell so far. STATE begins with the width of the longest state."""
    _begun: bool = False

    def show(self, rows: Mapping[str, Row]) -> None:
        """Prints a row for each change; `rows` holds the present rows of all jobs, by an identifier of the job."""
        gone = {job: self._gone(known) for job, known in self._rows.items() if job not in rows}
        changed = [cells for job, cells in rows.items() if self._is_news(job, cells)]
        self._rows = dict(rows)
        if not (changed or gone):
            return
        new = [*gone.values(), *changed]
        wider = _widths(self.columns, [self.columns, *new])
        self._widths = {column: max(self._widths.get(column, 0), width) for column, width in wider.items()}
        _print(self.columns, new, widths=self._widths, header=not self._begun)
        self._begun = True

    def _is_news(self, job: str, cells: Row) -> bool:
        """Whether anything but the job's age has changed."""
        known = self._rows.get(job)
        return known is None or self._without("AGE", known) != self._without("AGE", cells)

    def _without(self, column: str, cells: Row) -> Row:
        at = self.columns.index(column)
        return cells[:at] + cells[at + 1 :]

    def _gone(self, cells: Row) -> Row:
        replaced = {"STATE": DELETED, "PROGRESS": "", "ETA": "", "MESSAGE": ""}
        return tuple(replaced.get(column, cell) for column, cell in zip(self.columns, cells, strict=True))


def _widths(columns: Row, rows: Iterable[Row]) -> dict[str, int]:
    """The width of the widest cell of each column."""
    by_column = zip(*rows, strict=True)
    return {
        column: max(cell_len(one_line(cell)) for cell in cells)
        for column, cells in zip(columns, by_column, strict=True)
    }


def _print(
    columns: Row,
    rows: Iterable[Row],
    *,
    widths: Mapping[str, int],
    header: bool,
    fit: Fit = folded,
    least: int = LEAST,
) -> None:
    screen = Screen()
    limited = screen.is_terminal and fit is not whole
    if limited:
        widths = _narrowed({column: widths[column] for column in columns[:-1]}, screen.width - least)
    indent = sum(widths[column] + GAP for column in columns[:-1])
    room = screen.width - indent if limited else UNLIMITED
    beside = room >= least
    if not beside:
        indent, room = BELOW, max(least, screen.width - BELOW)
    for cells in (columns, *rows) if header else rows:
        *before, last = map(one_line, cells)
        line, end = Text(), 0
        for cell, column in zip(before, columns[:-1], strict=True):
            end += widths[column] + GAP
            free = widths[column] + GAP - cell_len(cell)
            line.append(cell, style_of(cell) if column == "STATE" else "")
            line.append(" " * free if free >= GAP else f"\n{' ' * end}")
        line.append("" if beside else f"\n{' ' * indent}")
        line.append(f"\n{' ' * indent}".join(fit(last, room)))
        line.rstrip()
        screen.print(line)


def _narrowed(widths: Mapping[str, int], room: int) -> dict[str, int]:
    """The widths of columns that have, with their gaps, only so much room: the wider one of the names gives way."""
    narrowed = dict(widths)
    names = NAMES & widths.keys()
    while names and sum(narrowed.values()) + GAP * len(narrowed) > room:
        widest = max(names, key=lambda name: narrowed[name])
        if narrowed[widest] <= NARROWEST:
            break
        narrowed[widest] -= 1
    return narrowed
