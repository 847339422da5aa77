"""`ddpjob logs [NAME]`: what the ranks of a run have written, merged and prefixed."""

import time
from dataclasses import dataclass
from itertools import starmap
from pathlib import Path

from ddpjob_operator.api import BadInputError, DDPJobStatus
from ddpjob_operator.local import RunDirectory, find_run

from .follow import Follower
from .words import failed_first, span_of_attempts, writer

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
    job = run.load()
    status = job.status if job else DDPJobStatus()
    attempt, rank = _attempt(run, status, which), which.rank
    gang = max(gang for gang in run.gangs() if gang <= attempt)
    ranks = sorted(int(file.stem.removeprefix("rank-")) for file in run.logs_of(gang).glob("rank-*.log"))
    if rank is not None and rank not in ranks:
        have = ", ".join(map(str, ranks)) or "none yet"
        raise BadInputError(f"no log of rank {rank} in attempt {attempt}; there is {have}")
    follower = Follower(
        run.logs,
        from_attempt=gang,
        to_attempt=None if follow and not which.past else gang,
        ranks=None if rank is None else frozenset({rank}),
        writer=writer(status.procs_per_node),
        first=failed_first(status, attempt),
    )
    while True:
        over = which.past or not follow or _over(run)
        for line in follower.lines(last=over):
            print(line, flush=True)
        if over:
            return 0
        time.sleep(POLL_SECONDS)


def _attempt(run: RunDirectory, status: DDPJobStatus, which: Which) -> int:
    """The attempt that is asked for. A gang's logs are those of all attempts until the next gang was made."""
    gangs = run.gangs()
    if not gangs:
        raise BadInputError("nothing has been started yet")
    last = max(status.attempt, gangs[-1])
    if which.previous and last == gangs[0]:
        raise BadInputError("there is no previous attempt; leave out --previous")
    if which.attempt is not None and not gangs[0] <= which.attempt <= last:
        spans = zip(gangs, (*(after - 1 for after in gangs[1:]), last), strict=True)
        raise BadInputError(
            f"no log of attempt {which.attempt}; there is {', '.join(starmap(span_of_attempts, spans))}"
        )
    return which.attempt if which.attempt is not None else last - which.previous


def _over(run: RunDirectory) -> bool:
    job = run.load()
    return job is None or job.status.finished or run.lock.holder() is None
