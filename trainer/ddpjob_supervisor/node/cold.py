"""Ranks as separate processes, each of which imports everything itself."""

import asyncio
import contextlib
import os
import sys
from typing import Self

from . import open_files
from .ranks import Launch, Rank, StartError, exit_code

COMMAND = (sys.executable, "-P", "-m", "ddpjob_rank.running.rank")
"""-P keeps the working directory out of the module search path, where a queue.py would hide the standard
library's."""


class Cold:
    """Starts each rank as a process that is not forked from the zygote, as a shell would."""

    def __init__(self) -> None:
        self._waiting: set[asyncio.Task[None]] = set()
        self.pids: set[int] = set()
        self.zygote: int | None = None

    async def ready(self) -> None:
        """Returns immediately, because there is nothing to prepare."""

    async def start(self, launch: Launch) -> Rank:
        """Starts a rank.

        Raises:
            StartError: Its process could not be created.
        """
        try:
            process = await asyncio.create_subprocess_exec(
                *(*COMMAND, str(os.getpid()), *launch.program.words),
                env=launch.env,
                cwd=launch.directory,
                start_new_session=True,
            )
        except OSError as error:
            raise StartError(f"cannot start {launch.program.name}: {error.strerror}") from error
        open_files.restore_limit(process.pid)
        rank = Rank(process.pid)
        self.pids.add(process.pid)
        task = asyncio.create_task(self._report_end(process, rank))
        self._waiting.add(task)
        task.add_done_callback(self._waiting.discard)
        if launch.cores is not None:
            with contextlib.suppress(ProcessLookupError):  # The rank has already ended.
                os.sched_setaffinity(process.pid, launch.cores)
        return rank

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass  # There is nothing to release.

    async def _report_end(self, process: asyncio.subprocess.Process, rank: Rank) -> None:
        code = await process.wait()
        self.pids.discard(process.pid)
        rank.ended.set_result(exit_code(code))
