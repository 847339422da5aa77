"""A program with all that it starts, and the CPU time that all of it took."""

import ctypes
import os
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

PR_SET_CHILD_SUBREAPER = 36


@dataclass(frozen=True)
class Cost:
    """What a program took: seconds by the clock, and seconds of the cores."""

    wall: float = 0.0
    cpu: float = 0.0

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(self.wall + other.wall, self.cpu + other.cpu)


def adopt_orphans() -> None:
    """From now on processes whose parents end come to this one, which can thus count what they took (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def run(command: Sequence[str]) -> tuple[int, Cost]:
    """Runs a program to its end: its exit code and its cost.

    What it leaves behind is buried as soon as it ends, as init would do it, and is counted where it ends in time.
    """
    begun, used = time.monotonic(), _cpu()
    program = subprocess.Popen(command)
    while True:
        pid, status = os.wait()
        if pid == program.pid:
            break
    program.returncode = os.waitstatus_to_exitcode(status)
    _bury()
    return program.returncode, Cost(time.monotonic() - begun, _cpu() - used)


def _bury() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
