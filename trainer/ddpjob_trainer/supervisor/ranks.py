"""Starting ranks: what a rank is given, and what a way of starting ranks must be able to do."""

import asyncio
import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from ddpjob_trainer.errors import TrainerError
from ddpjob_trainer.exit_codes import SIGNAL_BASE

from .program import Program


@dataclass(frozen=True, slots=True)
class Place:
    """Where a rank finds itself."""

    program: Program
    env: Mapping[str, str]
    threads: int | None = None
    """Threads of PyTorch; None: as it thinks."""


@dataclass(slots=True)
class Rank:
    """A rank that was started, in a session of its own."""

    pid: int
    ended: asyncio.Future[int] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    """Its exit code, 128+n for signal n, once it has ended."""

    def tell(self, number: signal.Signals) -> None:
        """Sends a signal, unless it has ended: its number may be another's by then."""
        if not self.ended.done():
            os.kill(self.pid, number)


class Starter(Protocol):
    """A way of starting ranks."""

    async def start(self, place: Place) -> Rank:
        """Starts one.

        Raises:
            StartError: It could not be started.
        """


class StartError(TrainerError):
    """A rank could not be started; the message says why."""


def exit_code(code: int) -> int:
    """The exit code as a shell has it, 128+n for signal n, of one as Python has it, -n for signal n."""
    return code if code >= 0 else SIGNAL_BASE - code
