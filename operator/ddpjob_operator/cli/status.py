"""`ddpjob status [NAME]`: what a job is doing, why, and what is left of its budget."""

import json
from pathlib import Path

from rich.console import Console
from rich.table import Table

from ddpjob_operator.api import BadInputError, DDPJob, Failure, State
from ddpjob_operator.api.words import counted
from ddpjob_operator.local import find_run, find_runs

from .words import age, world

COLUMNS = ("NAME", "STATE", "READY", "RESTARTS", "AGE", "MESSAGE")


def status(runs: Path, name: str | None, *, as_json: bool) -> int:
    """Prints one job in full, or a line for each."""
    if name is None and len(find_runs(runs)) != 1:
        return _list(runs, as_json=as_json)
    run = find_run(runs, name)
    job = run.load()
    assert job is not None, "find_run found its file"
    if as_json:
        print(json.dumps(job.to_document(), indent=2))
        return 0
    describe(Console(highlight=False), job)
    at_rest = job.status.finished or job.status.state is State.SUSPENDED
    if not at_rest and run.lock.holder() is None:
        print("\nNobody carries this job on, so this may be out of date. Go on with: ddpjob run FILE")
    return 0


def _list(runs: Path, *, as_json: bool) -> int:
    jobs = [job for run in find_runs(runs).values() if (job := run.load())]
    if not jobs:
        raise BadInputError(f"no runs under {runs}; start one with: ddpjob run FILE")
    if as_json:
        print(json.dumps([job.to_document() for job in jobs], indent=2))
        return 0
    tabulate(COLUMNS, [row(job, age(job.status.start_time)) for job in jobs])
    return 0


def tabulate(columns: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    """Prints a table; its last column takes what room there is."""
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="")
    for column in columns:
        table.add_column(column, no_wrap=column != columns[-1])
    for cells in rows:
        table.add_row(*cells)
    Console(highlight=False).print(table)


def row(job: DDPJob, age: str) -> tuple[str, ...]:
    """The cells of COLUMNS."""
    said = job.status
    return (job.metadata.name, said.state, said.ready, str(said.restarts), age, said.message)


def describe(console: Console, job: DDPJob, **more: str) -> None:
    """Prints a job in full; `more` are lines to add below its name, or to put for those that stand here."""
    said, budget = job.status, job.spec.restart
    left = max(0, budget.max_restarts - said.budget.used)
    lines = {
        "Name": job.metadata.name,
        **more,
        "State": said.state,
        "Message": said.message,
        "Ready": said.ready,
        "Attempt": said.attempt,
        "World": f"{world(said.nodes, said.procs_per_node)}, {said.backend}"
        if said.nodes and said.procs_per_node
        else "not started",
        "Restarts": f"{said.restarts}, and {said.disruptions} not counted",
        "Budget": f"{left} of {budget.max_restarts} restarts left within {budget.window_seconds} healthy seconds",
        "Age": age(said.start_time),
    }
    for name, value in lines.items():
        console.print(f"{name + ':':<14}{value}", soft_wrap=True)
    if said.last_failure:
        console.print(f"{'Last failure:':<14}{_failure(said.last_failure)}", soft_wrap=True)
    console.print("Conditions:")
    for condition in said.conditions:
        when = age(condition.last_transition_time)
        text = f"  {condition.type:<20}{condition.status:<7}{when:<6}{condition.reason}: {condition.message}"
        console.print(text, soft_wrap=True)


def _failure(failure: Failure) -> str:
    code = f", exit code {failure.exit_code}" if failure.exit_code is not None else ""
    step = f", after step {failure.step}" if failure.step is not None else ""
    more = f"; {counted(failure.consequences, 'more rank')} failed with it" if failure.consequences else ""
    return f"rank {failure.rank}{code}{step}: {failure.cause}: {failure.message}{more}"
