"""`ddpjob logs [NAME]`: what the ranks of a run have written, merged and prefixed."""

import time
from dataclasses import dataclass
from pathlib import Path

from ddpjob_operator.api import BadInputError
from ddpjob_operator.local import RunDirectory, find_run

from .follow import Follower
from .words import failed_first, writer

POLL_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class Which:
    """The logs that are asked for."""

    rank: int | None = None
    """Only this node's."""
    attempt: int | None = None
    """Only of this attempt; None: of the present one."""
    previous: bool = False
    """Of the attempt before the present one."""

    @property
    def past(self) -> bool:
        """Whether nothing is to come of them."""
        return self.previous or self.attempt is not None


def logs(runs: Path, name: str | None, which: Which, *, follow: bool) -> int:
    """Prints the logs of an attempt, the rank that failed first before the others.

    Raises:
        BadInputError: there is no such run, rank or attempt.
    """
    run = find_run(runs, name)
    attempt, rank = _attempt(run, which), which.rank
    directory = run.logs / f"attempt-{attempt}"
    if rank is not None and not run.log(rank, attempt).exists():
        have = ", ".join(str(found) for found in sorted(int(file.stem[5:]) for file in directory.glob("rank-*.log")))
        raise BadInputError(f"no log of rank {rank} in attempt {attempt}; there is {have or 'none yet'}")
    job = run.load()
    follower = Follower(
        run.logs,
        from_attempt=attempt,
        to_attempt=None if follow and not which.past else attempt,
        ranks=None if rank is None else frozenset({rank}),
        writer=writer(job.status.procs_per_node if job else None),
        first=failed_first(job.status, attempt) if job else None,
    )
    while True:
        over = which.past or not follow or _over(run)
        for line in follower.lines(last=over):
            print(line, flush=True)
        if over:
            return 0
        time.sleep(POLL_SECONDS)


def _attempt(run: RunDirectory, which: Which) -> int:
    attempts = sorted(int(directory.name.removeprefix("attempt-")) for directory in run.logs.glob("attempt-*"))
    if not attempts:
        raise BadInputError("nothing has been started yet")
    if which.previous and len(attempts) == 1:
        raise BadInputError("there is no previous attempt; leave out --previous")
    if which.attempt is not None and which.attempt not in attempts:
        raise BadInputError(f"no log of attempt {which.attempt}; there is {', '.join(map(str, attempts))}")
    return which.attempt if which.attempt is not None else attempts[-2 if which.previous else -1]


def _over(run: RunDirectory) -> bool:
    job = run.load()
    return job is None or job.status.finished or run.lock.holder() is None
