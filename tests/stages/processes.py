"""Runs programs, and measures the CPU time of everything that they start."""

import contextlib
import ctypes
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO

PR_SET_CHILD_SUBREAPER = 36


@dataclass(frozen=True)
class Cost:
    """What a program used: seconds on the clock, and CPU seconds."""

    wall: float = 0.0
    cpu: float = 0.0

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(self.wall + other.wall, self.cpu + other.cpu)


def adopt_orphans() -> None:
    """Makes this process the parent of processes orphaned from now on, to count their CPU time (Linux only)."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def run(*commands: Sequence[str]) -> tuple[list[int], Cost]:
    """Runs programs at the same time until all have ended. Returns their exit codes, and what they used together.

    The output of the first program is shown immediately, that of the others when they have ended. Processes that they
    leave behind are reaped as soon as they end, as init would do, and are counted if they end before the programs.
    """
    begun, used = time.monotonic(), _cpu()
    with contextlib.ExitStack() as files:
        said = [None, *(files.enter_context(tempfile.TemporaryFile()) for _ in commands[1:])]
        programs = {}
        for command, file in zip(commands, said, strict=True):
            program = subprocess.Popen(command, stdout=file, stderr=file and subprocess.STDOUT)
            programs[program.pid] = (program, file)
        codes: dict[int, int] = {}
        while len(codes) < len(commands):
            pid, status = os.wait()
            if pid in programs:
                program, file = programs[pid]
                program.returncode = codes[pid] = os.waitstatus_to_exitcode(status)
                if file:
                    _show(file)
    _reap_orphans()
    return [codes[pid] for pid in programs], Cost(time.monotonic() - begun, _cpu() - used)


def _show(file: IO[bytes]) -> None:
    file.seek(0)
    sys.stdout.flush()
    shutil.copyfileobj(file, sys.stdout.buffer)
    sys.stdout.flush()


def _reap_orphans() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
