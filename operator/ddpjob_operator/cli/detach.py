"""`ddpjob run --detach`: a run that goes on after its terminal is gone."""

import contextlib
import os
import sys
from collections.abc import Callable
from pathlib import Path

Leave = Callable[[Path], None]
"""Leaves the terminal; what is said from then on is appended to this file."""

SIGNALLED = 128
"""As a shell has it: the exit code of what a signal ended, less the signal's number."""


def detachable() -> Leave | int:
    """Returns twice: in a process that may leave the terminal, and in this one once the other has left it or ended.

    The first gets the function to leave: until then it refuses, asks and is interrupted like any command. This one
    gets the exit code: 0, or that of a process that has ended before it left.
    """
    reading, writing = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        os.close(reading)
        return lambda output: _leave(output, writing)
    os.close(writing)
    with os.fdopen(reading, "rb") as left:
        if left.read(1):
            return 0
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return code if code >= 0 else SIGNALLED - code


def _leave(output: Path, told: int) -> None:
    opened = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)  # It has what the ranks print.
    with os.fdopen(opened, "ab") as file, Path(os.devnull).open("rb") as nothing:
        os.setsid()
        sys.stdout.flush()
        sys.stderr.flush()
        for mine, terminals in ((nothing, 0), (file, 1), (file, 2)):
            os.dup2(mine.fileno(), terminals)
    with contextlib.suppress(BrokenPipeError), os.fdopen(told, "wb") as pipe:
        pipe.write(b"\n")
