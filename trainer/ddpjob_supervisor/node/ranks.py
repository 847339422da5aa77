"""A rank: what it gets, and how it is ended."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field

from ddpjob_rank.errors import TrainerError
from ddpjob_rank.exit_codes import SIGNAL_BASE
from ddpjob_rank.running.program import Program

from ddpjob_supervisor.watch.procfs import Process, handles

GONE = frozenset("XZ")
"""States of a process that has ended, whether or not its parent knows that."""


@dataclass(frozen=True, slots=True)
class Launch:
    """A rank's program, environment and cores."""

    program: Program
    env: Mapping[str, str]
    cores: frozenset[int] | None = None
    """The cores on which it runs; None: any."""


@dataclass(slots=True)
class Rank:
    """A rank that was started, in a session of its own."""

    pid: int
    ended: asyncio.Future[int] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    """Its exit code, 128+n for signal n, once it has ended."""

    def tell(self, number: signal.Signals) -> None:
        """Sends a signal, unless it has ended: its number may belong to another process by then."""
        if not self.ended.done():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    @property
    def runs(self) -> bool:
        """Whether it has not ended, as far as the kernel knows: we hear of that a moment later."""
        return not self.ended.done() and Process.of(self.pid).state not in GONE

    @property
    def only_interruptible(self) -> bool:
        """Whether SIGINT makes it clean up, as it does any Python program, but SIGTERM would just end it."""
        return handles(self.pid, signal.SIGINT) and not handles(self.pid, signal.SIGTERM)

    def interrupt(self) -> None:
        """Sends SIGINT to it and to what it has started in its session, as a terminal does on Ctrl-C."""
        if not self.ended.done():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGINT)

    def kill(self) -> None:
        """Ends it at once, with all that it has started in its session."""
        if not self.ended.done():
            for kill in (os.killpg, os.kill):  # One that was just forked has no session of its own yet.
                with contextlib.suppress(ProcessLookupError):
                    kill(self.pid, signal.SIGKILL)


class StartError(TrainerError):
    """A rank could not be started; the message says why."""


def exit_code(code: int) -> int:
    """The exit code as in a shell, 128+n for signal n, from one as in Python, -n for signal n."""
    return code if code >= 0 else SIGNAL_BASE - code
