"""The first lines of `ddpjob-train` and `ddpjob-supervise`: from here on requests to stop are obeyed.

The kernel drops a signal for which the first process of a container has no handler. What follows takes most of a
second to import; a pod that was suspended meanwhile would run on until its grace period is over, half a minute later.

Python's own start takes a moment, too. The trainer image blocks the signal until then, so it waits.
"""

import os
import signal

from .exit_codes import ExitCode


def train() -> None:
    """`ddpjob-train`."""
    _leave_on_request()
    from .main import main  # noqa: PLC0415

    main()


def supervise() -> None:
    """`ddpjob-supervise`."""
    _leave_on_request()
    from .supervisor.main import main  # noqa: PLC0415

    main()


def _leave_on_request() -> None:
    """Until a supervisor or a rank listens, there is nothing to save."""
    signal.signal(signal.SIGTERM, lambda *_: os._exit(ExitCode.SAVED_AND_STOPPED))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
