"""The rank's part in having its stderr heard: it writes into a pipe of its supervisor, which passes everything on."""

import contextlib
import os
import sys

from ddpjob_rank.environment import Env

SUFFIX = ".stderr"
"""Of the pipe, after the heartbeat file's path. Without a pipe, stderr stays as it is."""


def redirect() -> None:
    """Lets this process, and what it starts, write its stderr into the pipe, if there is one that somebody reads."""
    if not (heartbeat := os.environ.get(Env.HEARTBEAT)):
        return
    with contextlib.suppress(OSError):
        # To open a pipe that nobody reads would otherwise wait for ever.
        pipe = os.open(f"{heartbeat}{SUFFIX}", os.O_WRONLY | os.O_NONBLOCK)
        os.set_blocking(pipe, True)
        with contextlib.suppress(ValueError):
            sys.stderr.flush()
        os.dup2(pipe, 2)
        os.close(pipe)
