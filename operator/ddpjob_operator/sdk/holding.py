"""Runs a program on held nodes, as `ddpjob run --on` does, and returns its result."""

from argparse import Namespace
from collections import deque
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from pydantic import ValidationError

from ddpjob_operator.api import Cause, DDPJob, Incident
from ddpjob_operator.api.entrypoint import variables
from ddpjob_operator.cli.cluster.held_run import Ran, SentProgram, started
from ddpjob_operator.cli.cluster.packages import with_packages
from ddpjob_operator.cli.cluster.parcel import of_packed, packed_files
from ddpjob_operator.cli.cluster.run_on import follow, refuse_options, sent_program
from ddpjob_operator.cli.packed import PackedProgram
from ddpjob_operator.cli.run_logs import Line
from ddpjob_operator.cli.screen import Screen
from ddpjob_operator.client import Jobs, as_job, connect
from ddpjob_operator.client.archive import BY_EXEC, pack
from ddpjob_operator.client.source import read_folder

from .failures import JobFailed, failure_on_hold

LAST_LINES = 1000
"""How many lines of each node are searched for a traceback."""


def run_on(given: Namespace, packed: PackedProgram | None, *, quiet: bool) -> Any:
    """Runs a program on the held job `given.on`, and returns its result. Its arguments are those of the command.

    `packed` is the program, if they do not name it.

    Raises:
        BadInputError: There is no such job or program, the job is not held, or it runs another program.
        ClusterError: The cluster cannot be reached, or refuses.
        RankFailed: A rank has failed.
        JobFailed: A node was lost.
        KeyboardInterrupt: The program was stopped; the nodes are still held.
    """
    refuse_options(given)
    if packed is None:
        words, source, packages = sent_program(given)
    else:
        folder = None if given.source is None else read_folder(given.source, given.include, BY_EXEC)
        sources, packages = with_packages(given, of_packed(packed, folder, given.include))
        assert sources is not None, "it has the function"
        words, source = [packed.script], sources
    jobs = Jobs(connect(given.kubeconfig, given.context, given.namespace))
    document = jobs.get(given.on)
    screen, last = Screen(quiet=quiet), dict[int, deque[str]]()

    def show(line: Line) -> None:
        last.setdefault(line.node, deque(maxlen=LAST_LINES)).append(line.text)
        screen.print(str(line))

    for told in (*packed_files(source, whole=False), *(packed.told if packed else ())):
        screen.print(told)
    sent = SentProgram(words, pack(source.files, BY_EXEC), variables(given.env), packages)
    with started(jobs, document, sent, screen.print) as run:
        ran, interrupted = follow(run, given.on, show)
    if interrupted:
        raise KeyboardInterrupt(f"{ran.message or 'it was done'}; {given.on} is held")
    if ran.exit_code == 0:
        return ran.result
    raise _failure(as_job(document), ran, last)


def _failure(job: DDPJob, ran: Ran, last: Mapping[int, deque[str]]) -> JobFailed:
    incident = _incident(job, ran)
    log = () if incident is None else (*last.get(incident.node, ()),)
    return failure_on_hold(job, ran.message, incident, log)


def _incident(job: DDPJob, ran: Ran) -> Incident | None:
    """The incident that a supervisor has told of; None if there is none that can be understood."""
    told = ran.incident or {}
    try:
        return Incident(
            time=datetime.now(UTC),
            attempt=ran.attempt,
            node=told["node"],
            rank=told.get("rank"),
            pod=f"node {told['node']} of {job.metadata.name}",
            cause=told.get("cause") or Cause.APPLICATION,
            exit_code=told.get("exitCode"),
            step=told.get("step"),
        )
    except (LookupError, ValidationError):
        return None
