"""`ddpjob status [NAME]`: what a job is doing, why, and what is left of its budget."""

import json
import sys
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import NoReturn

from ddpjob_operator.api import BadInputError, DDPJob, State
from ddpjob_operator.local import (
    RESULTS,
    RunDirectory,
    Runs,
    find_run,
    known_runs,
    look,
    page_of,
    spec_for_this_machine,
    status_page,
)
from ddpjob_operator.text import visible
from ddpjob_operator.view_model import Around, JobKey, JobRow, Origin, job_row, rank_rows

from .describe import FULL, describe, describe_ranks, describe_spec
from .invocation import itself
from .last_loss import logged_last
from .phrases import about_a_file, file_path
from .rank_stacks import print_stacks
from .screen import Screen
from .table import COLUMNS, Growing, Row, row, tabulate

POLL_SECONDS = 0.2
WIDE = "-o wide shows one job in full; add its name"


def status(runs: Runs, name: str | None, output: str | None = None) -> int:
    """Prints one job in full, or a line for each job.

    Raises:
        BadInputError: there is no such run, or `output` is `wide` and there are several runs.
    """
    as_json = output == "json"
    if name is None and len(known := known_runs(runs)) != 1:
        if output == "wide" and known:
            raise BadInputError(WIDE)
        return _list(runs, as_json=as_json)
    run = find_run(runs, name)
    job = run.load()
    assert job is not None, "find_run found its file"
    if as_json:
        print(json.dumps(job.to_document(), indent=2))
        return 0
    here = job.model_copy(update={"spec": spec_for_this_machine(job.spec)})
    links = {"Logs": file_path(run.logs) if run.gangs() else None, "Status page": status_page(run, job)}
    around = Around(run.made, links=links, logged=logged_last(run), results=RESULTS)
    screen, full = Screen(), output == FULL
    describe(screen, here, datetime.now(UTC), around, wide=full or output == "wide")
    if full:
        describe_spec(screen, job)
        describe_ranks(screen, () if job.status.finished else rank_rows(job, page_of(run, job)))
    at_rest = job.status.finished or job.status.state is State.SUSPENDED
    if not at_rest and run.lock.holder() is None:
        doubt = "so this may be out of date" if run.left_behind else "and none of its processes is left"
        print(f"\nNo ddpjob run is in charge of this job, {doubt}. Go on with: {itself()} {run.resume}")
    return 0


def stacks(runs: Runs, name: str | None) -> int:
    """Prints what each rank of a run is doing now. If `name` is None, there must be only one run.

    Raises:
        BadInputError: there is no such run, or it is not running.
    """
    print_stacks(Screen(), look(find_run(runs, name)))
    return 0


def _list(runs: Runs, *, as_json: bool) -> int:
    loaded = load(known_runs(runs))
    if not loaded:
        raise BadInputError(f"no runs under {runs}; start one with: ddpjob run FILE")
    if as_json:
        print(json.dumps([job.to_document() for _, job in loaded], indent=2))
        return 0
    tabulate(COLUMNS, [row_of(run, job) for run, job in loaded])
    return 0


def row_of(run: RunDirectory, job: DDPJob) -> Row:
    """A row of the table. As on a cluster, AGE counts from the job's creation; resuming does not reset it."""
    now = datetime.now(UTC)
    return row(row_here(run, job, now), now)


def row_here(run: RunDirectory, job: DDPJob, now: datetime, loss: str | None = None) -> JobRow:
    """What a table shows of a run at the time `now`. `loss` is the last one in its log, if that was read."""
    key = JobKey(Origin.HERE, job.metadata.namespace, job.metadata.name, str(run.root))
    return job_row(job, key, now, run.made, loss)


def load(runs: Iterable[RunDirectory]) -> list[tuple[RunDirectory, DDPJob]]:
    """The runs with their jobs. A file that is damaged or not readable is reported as a warning.

    Raises:
        BadInputError: no file can be read.
    """
    loaded, wrong = [], []
    for run in runs:
        try:
            if job := run.load():
                loaded.append((run, job))
        except BadInputError as error:
            wrong.append(str(error))
        except PermissionError as error:
            wrong.append(about_a_file(error))
    if wrong and not loaded:
        raise BadInputError("\nerror: ".join(wrong))
    for text in wrong:
        print(f"warning: {visible(text)}", file=sys.stderr)
    return loaded


def watch(runs: Runs, name: str | None) -> NoReturn:
    """Prints a line for the run `name`, or for each run if `name` is None, and a new line whenever a run has changed.

    Raises:
        BadInputError: there is no such run.
        KeyboardInterrupt: the user pressed Ctrl-C; without that, `watch` does not end.
    """
    table, read = Growing(COLUMNS), dict[Path, tuple[object, DDPJob]]()
    chosen = [find_run(runs, name)] if name is not None or not known_runs(runs) else []
    while True:
        rows: dict[str, Row] = {}
        for run in chosen or known_runs(runs):
            if job := _as_written(run, read):
                rows[job.metadata.uid] = row_of(run, job)
        table.show(rows)
        time.sleep(POLL_SECONDS)


def _as_written(run: RunDirectory, read: dict[Path, tuple[object, DDPJob]]) -> DDPJob | None:
    """The job of a run; None if its file was deleted. `read` caches jobs until their files are replaced."""
    try:
        found = run.job_file.stat()
    except FileNotFoundError:
        return None
    mark = (found.st_ino, found.st_mtime_ns)
    if run.root not in read or read[run.root][0] != mark:
        if (job := run.load()) is None:
            return None
        read[run.root] = (mark, job)
    return read[run.root][1]
