"""`ddpjob logs [NAME]`: the output of a run's ranks, merged and prefixed."""

import argparse
import time
from collections import defaultdict, deque
from collections.abc import Iterable
from itertools import chain, starmap

from ddpjob_operator.api import BadInputError, DDPJobStatus
from ddpjob_operator.api.words import listed
from ddpjob_operator.local import RunDirectory, Runs, find_run

from .phrases import failed_first, span_of_attempts, writer
from .run_logs import Line, RunLogs, Which

POLL_SECONDS = 0.2


def which_of(arguments: argparse.Namespace) -> Which:
    """The logs that the arguments request."""
    return Which(
        arguments.node,
        arguments.rank,
        arguments.attempt,
        previous=arguments.previous,
        tail=arguments.tail,
        since_seconds=arguments.since,
        timestamps=arguments.timestamps,
    )


def logs(runs: Runs, name: str | None, which: Which, *, follow: bool) -> int:
    """Prints the logs of an attempt; the log of the rank that failed first comes first.

    Raises:
        BadInputError: there is no such run, node or attempt, or `which` requests times.
    """
    _check_needs_no_times(which)
    run = find_run(runs, name)
    job = run.load()
    status = job.status if job else DDPJobStatus()
    which = which if job is None else which.of_job(job)
    attempt, node = _attempt(run, status, which), which.node
    gang = max(gang for gang in run.gangs() if gang <= attempt)
    numbers = (file.stem.removeprefix("node-") for file in run.logs_of(gang).glob("node-*.log"))
    nodes = sorted(int(node) for node in numbers if node.isdecimal())
    if node is not None and node not in nodes:
        existing = listed(nodes) if nodes else "none yet"
        raise BadInputError(f"no log of node {node} in attempt {attempt}; there is {existing}")
    run_logs = RunLogs(
        run.logs,
        from_attempt=gang,
        to_attempt=None if follow and not which.past else gang,
        nodes=None if node is None else frozenset({node}),
        writer=writer(status.procs_per_node),
        first=failed_first(status, attempt),
        last=max(status.attempt, gang),
    )
    tail = which.tail
    while True:
        over = which.past or not follow or _over(run)
        lines = (line for line in run_logs.lines(last=over) if not which.past or line.attempt == attempt)
        for line in _last(lines, tail):
            print(line, flush=True)
        tail = None
        if over:
            return 0
        time.sleep(POLL_SECONDS)


def _check_needs_no_times(which: Which) -> None:
    """Refuses flags that need the time of each line: on this machine, no container runtime adds times to the logs.

    Raises:
        BadInputError: `which` requests times.
    """
    flags = {"--since": which.since_seconds is not None, "--timestamps": which.timestamps}
    if given := [flag for flag, is_given in flags.items() if is_given]:
        raise BadInputError(
            f"{given[0]} is for jobs on a cluster: lines of a run on this machine have no times; for its last lines"
            " use --tail"
        )


def _last(lines: Iterable[Line], number: int | None) -> Iterable[Line]:
    """The last `number` lines of each node; None means all lines."""
    if number is None:
        return lines
    kept: defaultdict[int, deque[Line]] = defaultdict(lambda: deque(maxlen=number))
    for line in lines:
        kept[line.node].append(line)
    return chain.from_iterable(kept.values())


def _attempt(run: RunDirectory, status: DDPJobStatus, which: Which) -> int:
    """The requested attempt. A gang's logs contain its first attempt, and the attempts after restarts in place.

    Raises:
        BadInputError: nothing was started yet, or there is no log of the requested attempt.
    """
    gangs = run.gangs()
    if not gangs:
        raise BadInputError("nothing has been started yet")
    last = max(status.attempt, gangs[-1])
    if which.previous and last == gangs[0]:
        raise BadInputError("there is no previous attempt; leave out --previous")
    if which.attempt is not None and not gangs[0] <= which.attempt <= last:
        spans = zip(gangs, (*(after - 1 for after in gangs[1:]), last), strict=True)
        attempts = listed([*starmap(span_of_attempts, spans)])
        raise BadInputError(f"no log of attempt {which.attempt}; there is {attempts}")
    return which.attempt if which.attempt is not None else last - which.previous


def _over(run: RunDirectory) -> bool:
    job = run.load()
    return job is None or job.status.finished or run.lock.holder() is None
