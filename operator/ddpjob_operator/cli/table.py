"""Tables of jobs: printed at once, or row by row as jobs change."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from rich.cells import cell_len
from rich.table import Table

from ddpjob_operator.api import DDPJob, State

from .screen import Screen, visible

COLUMNS = ("NAME", "STATE", "READY", "PROGRESS", "ETA", "RESTARTS", "AGE", "MESSAGE")
DELETED = "Deleted"
"""In place of the state of a job that is not there any more."""
UNLIMITED = 100_000
"""Cells of a line that nobody looks at on a terminal."""

Row = tuple[str, ...]


def tabulate(columns: Row, rows: Sequence[Row]) -> None:
    """Prints a table. On a terminal its last column takes what room there is; in a pipe a row is a line."""
    _print(columns, rows, widths=_widths(columns, [columns, *rows]), header=True)


def row(job: DDPJob, age: str) -> Row:
    """The cells of COLUMNS."""
    said, seen = job.status, job.status.progress
    progress = (seen.display, "" if said.finished else seen.eta) if seen else ("", "")
    return (job.metadata.name, said.state, said.ready, *progress, str(said.restarts), age, said.message)


@dataclass
class Growing:
    """A table to which a row is added for each job that is new, has changed, or is gone."""

    columns: Row
    _rows: dict[str, Row] = field(default_factory=dict)
    _widths: dict[str, int] = field(default_factory=lambda: {"STATE": max(map(len, State))})
    """What has been shown in a column fits into it from then on; of the state it is known beforehand."""
    _begun: bool = False

    def show(self, rows: Mapping[str, Row]) -> None:
        """Prints what has changed; `rows` are those of all jobs that there are, by what tells the jobs apart."""
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
        column: max(cell_len(visible(cell)) for cell in those) for column, those in zip(columns, cells, strict=True)
    }


def _print(columns: Row, rows: Iterable[Row], *, widths: Mapping[str, int], header: bool) -> None:
    screen = Screen()
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="", show_header=header)
    for column in columns:
        last = column == columns[-1]
        table.add_column(column, no_wrap=not last, min_width=None if last else widths[column], overflow="fold")
    for cells in rows:
        table.add_row(*cells)
    if not screen.is_terminal:
        screen.width = UNLIMITED
    screen.print(table, soft_wrap=False)
