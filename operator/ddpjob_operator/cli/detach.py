"""`ddpjob run --detach`: a run that continues in the background after its terminal is closed."""

import contextlib
import os
import sys
from collections.abc import Callable
from pathlib import Path

Leave = Callable[[Path], None]
"""A function that detaches this process from its terminal and appends further output to the given file."""

SIGNALLED = 128
"""A shell's exit code for a process that was ended by a signal is the signal's number plus this number."""


def detachable() -> Leave | int:
    """Forks this process; returns in the child immediately, and in the parent when the child has detached or ended.

    In the child, returns the function that detaches it. Until the child calls this function, it prints errors to the
    terminal and can be interrupted, like any command. In the parent, returns the exit code to end with: 0, or the
    child's exit code if the child ended before it detached.
    """
    reading, writing = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        os.close(reading)
        return lambda output: _leave(output, writing)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        if pipe.read(1):
            return 0
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return code if code >= 0 else SIGNALLED - code


def _leave(output: Path, told: int) -> None:
    opened = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)  # Ranks may print secrets.
    with os.fdopen(opened, "ab") as file, Path(os.devnull).open("rb") as null:
        os.setsid()
        sys.stdout.flush()
        sys.stderr.flush()
        for source, target in ((null, 0), (file, 1), (file, 2)):
            os.dup2(source.fileno(), target)
    with contextlib.suppress(BrokenPipeError), os.fdopen(told, "wb") as pipe:
        pipe.write(b"\n")
