"""`ddpjob logs [NAME]`: what the ranks of a run have written, merged and prefixed."""

import time
from pathlib import Path

from ddpjob_operator.api import BadInputError
from ddpjob_operator.local import RunDirectory, find_run

from .follow import Follower
from .words import writer

POLL_SECONDS = 0.2


def logs(runs: Path, name: str | None, rank: int | None, *, follow: bool, previous: bool) -> int:
    """Prints the logs of the last attempt that has some, or of the one before it.

    Raises:
        BadInputError: there is no such run, rank or attempt.
    """
    run = find_run(runs, name)
    attempt = _attempt(run, previous=previous)
    ranks = None if rank is None else frozenset({rank})
    directory = run.logs / f"attempt-{attempt}"
    if rank is not None and not run.log(rank, attempt).exists():
        have = ", ".join(str(found) for found in sorted(int(file.stem[5:]) for file in directory.glob("rank-*.log")))
        raise BadInputError(f"no log of rank {rank} in attempt {attempt}; there is {have or 'none yet'}")
    job = run.load()
    last = None if follow and not previous else attempt
    follower = Follower(run.logs, attempt, ranks, last, writer(job.status.procs_per_node if job else None))
    while True:
        over = previous or not follow or _over(run)
        for line in follower.lines(last=over):
            print(line, flush=True)
        if over:
            return 0
        time.sleep(POLL_SECONDS)


def _attempt(run: RunDirectory, *, previous: bool) -> int:
    attempts = sorted(int(directory.name.removeprefix("attempt-")) for directory in run.logs.glob("attempt-*"))
    if previous:
        attempts = attempts[:-1]
    if not attempts:
        lacking = "there is no previous attempt; leave out --previous" if previous else "nothing has been started yet"
        raise BadInputError(lacking)
    return attempts[-1]


def _over(run: RunDirectory) -> bool:
    job = run.load()
    return job is None or job.status.finished or run.lock.holder() is None
