"""The last loss of a job: what its program reports or, failing that, what its log shows."""

from contextlib import suppress

from ddpjob_operator.api import DDPJobStatus
from ddpjob_operator.local import RunDirectory, tail

from .progress import LoggedProgress

TAIL = 1 << 16
"""Number of bytes at the end of a log that are searched for a loss."""
MOST_DIGITS = 32
"""A reported loss is cut off after this many characters."""


def last_loss(status: DDPJobStatus, logged: LoggedProgress) -> str | None:
    """The last loss in words, or None. A loss that the program reports takes precedence over one that it prints."""
    return _reported(status, logged) or (str(logged.printed_loss) if logged.printed_loss else None)


def last_loss_alone(status: DDPJobStatus, logged: LoggedProgress) -> str:
    """The last loss as a number without words, for a table; empty if there is none."""
    return _reported(status, logged) or (logged.printed_loss.value if logged.printed_loss else "")


def _reported(status: DDPJobStatus, logged: LoggedProgress) -> str | None:
    if logged.loss is not None:
        return logged.loss[:MOST_DIGITS]
    return loss_in(status)


def loss_in(status: DDPJobStatus) -> str | None:
    """The loss in a job's status; None if there is none."""
    progress = status.progress
    if progress is None or (progress.loss is None and not progress.loss_not_finite):
        return None
    return progress.loss_not_finite or f"{progress.loss:.4g}"


def logged_last(run: RunDirectory) -> LoggedProgress:
    """The progress in the last lines of node 0's log; no progress if the log cannot be read."""
    logged, gangs = LoggedProgress(), run.gangs()
    log = run.logs_of(gangs[-1]) / "node-0.log" if gangs else None
    if log is None or not log.is_file():
        return logged
    with suppress(OSError):
        for line in tail(log, TAIL).splitlines():
            logged.hear(0, line)
    return logged
