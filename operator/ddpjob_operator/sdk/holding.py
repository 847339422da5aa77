"""Runs a program on held nodes, as `ddpjob run --on` does, and returns its result."""

import sys
from argparse import Namespace
from collections import deque
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from pydantic import ValidationError

from ddpjob_operator.api import Cause, DDPJob, Incident
from ddpjob_operator.api.entrypoint import variables
from ddpjob_operator.cli.cluster.held_run import HeldRun, Ran, SentProgram, started
from ddpjob_operator.cli.cluster.packages import with_packages
from ddpjob_operator.cli.cluster.parcel import of_packed, packed_files
from ddpjob_operator.cli.cluster.run_on import follow, refuse_options, sent_program
from ddpjob_operator.cli.cluster.shown_run import ShownRun
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
    # In a notebook, stdout claims to be a terminal, but cannot overwrite what it shows.
    screen = Screen(quiet=quiet, force_terminal=None if sys.stdout is sys.__stdout__ else False)
    for told in (*packed_files(source, whole=False), *(packed.told if packed else ())):
        screen.print(told)
    sent = SentProgram(words, pack(source.files, BY_EXEC), variables(given.env), packages)
    with started(jobs, document, sent, screen.print) as run:
        kept = _Kept(run)
        ran, interrupted = follow(run, given.on, ShownRun.on(run, jobs, document, kept, screen))
    assert ran is not None, "there are no saves to wait for"
    if interrupted:
        raise KeyboardInterrupt(f"{ran.message or 'it was done'}; {given.on} is held")
    if ran.exit_code == 0:
        return ran.result
    raise _failure(as_job(document), ran, kept.last)


class _Kept:
    """The output of a run, of which the last lines of each node are kept."""

    def __init__(self, run: HeldRun) -> None:
        self.last: dict[int, deque[str]] = {}
        self._run = run
        self.skip, self.unfinished = run.skip, run.unfinished

    def lines(self, *, last: bool = False) -> Iterator[Line]:
        for line in self._run.lines(last=last):
            self.last.setdefault(line.node, deque(maxlen=LAST_LINES)).append(line.text)
            yield line


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
