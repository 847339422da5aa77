"""A rank as a process: what it is started with, and how it is signaled and killed."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ddpjob_rank.errors import TrainerError
from ddpjob_rank.exit_codes import SIGNAL_BASE
from ddpjob_rank.running.program import Program

from ddpjob_supervisor.watch.procfs import Process, handles

GONE = frozenset("XZ")
"""States of a process in /proc that mean that it has ended, whether or not its parent has reaped it."""


@dataclass(frozen=True, slots=True)
class Launch:
    """A rank's program, environment and cores."""

    program: Program
    env: Mapping[str, str]
    cores: frozenset[int] | None = None
    """The cores on which the rank may run; None if it may run on any."""
    directory: Path | None = None
    """The working directory; None if it is the supervisor's."""


@dataclass(slots=True)
class Rank:
    """A rank that was started, in a session of its own."""

    pid: int
    ended: asyncio.Future[int] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    """Set when the rank has ended, to its exit code, which is 128+n for signal n."""

    def send_signal(self, number: signal.Signals) -> None:
        """Sends a signal, unless the rank has ended: then its process ID may already belong to another process."""
        if not self.ended.done():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    @property
    def runs(self) -> bool:
        """Whether the process still runs, according to the kernel.

        `ended` is set a moment after the process has ended.
        """
        return not self.ended.done() and Process.of(self.pid).state not in GONE

    @property
    def only_interruptible(self) -> bool:
        """Whether the rank handles SIGINT, as any Python program does, but SIGTERM would end it without cleanup."""
        return handles(self.pid, signal.SIGINT) and not handles(self.pid, signal.SIGTERM)

    def interrupt(self) -> None:
        """Sends SIGINT to the rank's process group, as a terminal does on Ctrl-C."""
        if not self.ended.done():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGINT)

    def kill(self) -> None:
        """Kills the rank and the other processes of its process group."""
        if not self.ended.done():
            for kill in (os.killpg, os.kill):  # A rank that was just forked does not have its own process group yet.
                with contextlib.suppress(ProcessLookupError):
                    kill(self.pid, signal.SIGKILL)


class StartError(TrainerError):
    """A rank could not be started. The message gives the reason."""


def exit_code(code: int) -> int:
    """Converts Python's return code (-n for signal n) to a shell's exit code (128+n for signal n)."""
    return code if code >= 0 else SIGNAL_BASE - code
