"""`ddpjob status [NAME]`: what a job is doing, why, and what is left of its budget."""

import json
from datetime import UTC, datetime
from pathlib import Path

from rich.cells import cell_len
from rich.table import Table

from ddpjob_operator.api import BadInputError, DDPJob, State
from ddpjob_operator.local import as_here, find_run, find_runs, known_runs, registered

from .describe import describe
from .screen import Screen, visible
from .words import age, file_path, itself

COLUMNS = ("NAME", "STATE", "READY", "PROGRESS", "ETA", "RESTARTS", "AGE", "MESSAGE")
UNLIMITED = 100_000
"""Cells of a line that nobody looks at on a terminal."""


def status(runs: Path, name: str | None, *, as_json: bool) -> int:
    """Prints one job in full, or a line for each."""
    if name is None and len(known_runs(runs)) != 1:
        return _list(runs, as_json=as_json)
    run = find_run(runs, name)
    job = run.load()
    assert job is not None, "find_run found its file"
    if as_json:
        print(json.dumps(job.to_document(), indent=2))
        return 0
    here = job.model_copy(update={"spec": as_here(job.spec)})
    describe(Screen(), here, datetime.now(UTC))
    at_rest = job.status.finished or job.status.state is State.SUSPENDED
    if not at_rest and run.lock.holder() is None:
        go_on = f"{itself()} run --resume {job.metadata.name}"
        print(f"\nNobody carries this job on, so this may be out of date. Go on with: {go_on}")
    return 0


def _list(runs: Path, *, as_json: bool) -> int:
    jobs = [job for run in known_runs(runs) if (job := run.load())]
    if not jobs:
        raise BadInputError(f"no runs under {runs}; start one with: ddpjob run FILE")
    if as_json:
        print(json.dumps([job.to_document() for job in jobs], indent=2))
        return 0
    tabulate(COLUMNS, [row(job, age(job.status.start_time)) for job in jobs])
    return 0


def ls(runs: Path) -> int:
    """Prints a line for each run of this user on this machine, wherever it is."""
    everywhere = {run.root: run for run in (*registered(), *find_runs(runs.absolute()).values())}
    jobs = [(run, job) for run in everywhere.values() if (job := run.load())]
    rows = [(*row(job, age(job.status.start_time))[:-1], file_path(run.root)) for run, job in jobs]
    tabulate((*COLUMNS[:-1], "DIRECTORY"), rows)
    return 0


def tabulate(columns: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    """Prints a table. On a terminal its last column takes what room there is; in a pipe a row is a line."""
    screen = Screen()
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="")
    for words in zip(columns, *rows, strict=True):
        column, last = words[0], words[0] == columns[-1]
        widest = max(cell_len(visible(word)) for word in words)
        table.add_column(column, no_wrap=not last, min_width=None if last else widest, overflow="fold")
    for cells in rows:
        table.add_row(*cells)
    if not screen.is_terminal:
        screen.width = UNLIMITED
    screen.print(table, soft_wrap=False)


def row(job: DDPJob, age: str) -> tuple[str, ...]:
    """The cells of COLUMNS."""
    said, seen = job.status, job.status.progress
    progress = (seen.display, "" if said.finished else seen.eta) if seen else ("", "")
    return (job.metadata.name, said.state, said.ready, *progress, str(said.restarts), age, said.message)
