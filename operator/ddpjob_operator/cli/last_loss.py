"""Reads the progress, and with it the last loss, that the log of a run on this machine shows."""

from contextlib import suppress

from ddpjob_operator.local import RunDirectory, tail
from ddpjob_operator.view_model import LoggedProgress

TAIL = 1 << 16
"""Number of bytes at the end of a log that are searched for a loss."""


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
