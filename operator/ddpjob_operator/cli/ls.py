"""`ddpjob ls`: the runs of this user on this machine, in any directory, the newest first."""

import json
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from ddpjob_operator.api import BadInputError, DDPJob, State
from ddpjob_operator.local import RunDirectory, Runs, all_runs
from ddpjob_operator.view_model import last_loss_alone, loss_in

from .last_loss import logged_last
from .phrases import file_path
from .status import load, row_of
from .table import COLUMNS, path_end, tabulate, whole

NARROW = ("NAME", "STATE", "PROGRESS", "LOSS", "RESTARTS", "AGE")
"""Few columns, so that a terminal 80 characters wide has room for the directory."""
WIDE = (*COLUMNS[: COLUMNS.index("ETA")], "LOSS", *COLUMNS[COLUMNS.index("ETA") : -1])
BEFORE_ALL = datetime.min.replace(tzinfo=UTC)


def ls(runs: Runs, output: str | None = None, states: Sequence[str] = ()) -> int:
    """Prints a line for each run, or only for those in `states`; `output` is `wide` for more columns, or `json`.

    Raises:
        BadInputError: there is no such state, or the named run directory does not exist.
    """
    wanted = {_state(name) for name in states}
    found = [(run, job) for run, job in load(all_runs(runs)) if not wanted or job.status.state in wanted]
    found.sort(key=lambda pair: _began(*pair), reverse=True)
    if output == "json":
        print(json.dumps([_document(run, job) for run, job in found], indent=2))
        return 0
    columns = WIDE if output == "wide" else NARROW
    rows = []
    for run, job in found:
        cells = dict(zip(COLUMNS, row_of(run, job), strict=True)) | {"LOSS": _loss(run, job)}
        rows.append((*(cells[column] for column in columns), file_path(run.root)))
    tabulate((*columns, "DIRECTORY"), rows, fit=whole if output == "wide" else path_end)
    return 0


def _state(name: str) -> State:
    for state in State:
        if state.lower() == name.lower():
            return state
    raise BadInputError(f"--state {name}: must be one of {', '.join(State)}")


def _began(run: RunDirectory, job: DDPJob) -> datetime:
    return run.made or job.status.start_time or BEFORE_ALL


def _loss(run: RunDirectory, job: DDPJob) -> str:
    return loss_in(job.status) or last_loss_alone(job.status, logged_last(run))


def _document(run: RunDirectory, job: DDPJob) -> dict[str, Any]:
    """A run as JSON, for programs. A loss that is not finite is a string, because JSON has no such numbers."""
    status, loss = job.status, _loss(run, job)
    number = None
    with suppress(ValueError):
        number = float(loss)
    finite = number is not None and abs(number) < float("inf")
    return {
        "name": job.metadata.name,
        "directory": str(run.root),
        "created": run.made and run.made.isoformat(),
        "state": status.state,
        "message": status.message,
        "step": status.progress.step if status.progress else None,
        "loss": number if finite else loss or None,
        "restarts": status.restarts,
    }
