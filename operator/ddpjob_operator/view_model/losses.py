"""The last loss of a job: what its program reports or, failing that, what its log shows."""

from ddpjob_operator.api import DDPJobStatus

from .logged_progress import LoggedProgress

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
