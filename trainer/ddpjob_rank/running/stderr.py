"""Redirects the rank's stderr into a pipe to its supervisor, which reads it and passes everything on."""

import contextlib
import os
import sys

from ddpjob_rank.environment import Env

SUFFIX = ".stderr"
"""The suffix of the pipe's path, which otherwise is the path of the heartbeat file."""


def redirect() -> None:
    """Redirects stderr of this process and its children into the pipe, if the pipe exists and something reads it."""
    if not (heartbeat := os.environ.get(Env.HEARTBEAT)):
        return
    with contextlib.suppress(OSError):
        # Without O_NONBLOCK, opening a pipe that nobody reads would wait forever.
        pipe = os.open(f"{heartbeat}{SUFFIX}", os.O_WRONLY | os.O_NONBLOCK)
        os.set_blocking(pipe, True)
        with contextlib.suppress(ValueError):
            sys.stderr.flush()
        os.dup2(pipe, 2)
        os.close(pipe)
