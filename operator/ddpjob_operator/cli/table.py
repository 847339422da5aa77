"""Tables of jobs: printed at once, or row by row as jobs change."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from ddpjob_operator.api import DDPJob, State
from ddpjob_operator.text import one_line

from .screen import Screen

COLUMNS = ("NAME", "STATE", "READY", "PROGRESS", "ETA", "RESTARTS", "AGE", "MESSAGE")
DELETED = "Deleted"
"""In place of the state of a job that no longer exists."""
GAP = 3
"""Cells between columns."""
LEAST = 16
"""Cells of the last column; a terminal without room for them breaks the lines itself."""
UNLIMITED = 100_000
"""Cells of a line that is not shown on a terminal."""

Row = tuple[str, ...]
Fit = Callable[[str, int], list[str]]
"""The lines by which a text of the last column fits into that many cells."""


def folded(text: str, room: int) -> list[str]:
    """All of it, over several lines."""
    return [line.plain for line in Text(text).wrap(Screen(), room, overflow="fold")] or [""]


def path_end(text: str, room: int) -> list[str]:
    """A path's end, which says most, from the beginning of a name if there is one."""
    if cell_len(text) <= room:
        return [text]
    end = text
    while cell_len(end) >= room:
        end = end[1:]
    return [f"…{end[max(0, end.find('/')) :]}"]


def whole(text: str, _room: int) -> list[str]:
    """All of it in one line, however long that is."""
    return [text]


def tabulate(columns: Row, rows: Sequence[Row], fit: Fit = folded) -> None:
    """Prints a table. On a terminal its last column takes the available room; in a pipe a row is a line."""
    _print(columns, rows, widths=_widths(columns, [columns, *rows]), header=True, fit=fit)


def row(job: DDPJob, age: str) -> Row:
    """The cells of COLUMNS."""
    said, shown = job.status, job.status.display
    eta = "" if said.finished else shown.eta
    return (job.metadata.name, said.state, shown.ready, shown.progress, eta, str(said.restarts), age, said.message)


@dataclass
class Growing:
    """A table to which a row is added for each job that is new, has changed, or is gone."""

    columns: Row
    _rows: dict[str, Row] = field(default_factory=dict)
    _widths: dict[str, int] = field(default_factory=lambda: {"STATE": max(map(len, State))})
    """What has been shown in a column fits into it from then on; the width of the state is known beforehand."""
    _begun: bool = False

    def show(self, rows: Mapping[str, Row]) -> None:
        """Prints what has changed; `rows` are those of all jobs, keyed by what identifies each job."""
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
        """Whether more than the job's age has changed."""
        known = self._rows.get(job)
        return known is None or self._without("AGE", known) != self._without("AGE", cells)

    def _without(self, column: str, cells: Row) -> Row:
        at = self.columns.index(column)
        return cells[:at] + cells[at + 1 :]

    def _gone(self, cells: Row) -> Row:
        said = {"STATE": DELETED, "PROGRESS": "", "ETA": "", "MESSAGE": ""}
        return tuple(said.get(column, cell) for column, cell in zip(self.columns, cells, strict=True))


def _widths(columns: Row, rows: Iterable[Row]) -> dict[str, int]:
    """The widest cell of each column."""
    cells = zip(*rows, strict=True)
    return {
        column: max(cell_len(one_line(cell)) for cell in those) for column, those in zip(columns, cells, strict=True)
    }


def _print(columns: Row, rows: Iterable[Row], *, widths: Mapping[str, int], header: bool, fit: Fit = folded) -> None:
    screen = Screen()
    indent = sum(widths[column] + GAP for column in columns[:-1])
    room = max(LEAST, screen.width - indent) if screen.is_terminal else UNLIMITED
    for cells in (columns, *rows) if header else rows:
        *before, last = map(one_line, cells)
        sized = (set_cell_size(cell, widths[column] + GAP) for cell, column in zip(before, columns[:-1], strict=True))
        lines = f"\n{' ' * indent}".join(fit(last, room))
        screen.print(f"{''.join(sized)}{lines}".rstrip())
