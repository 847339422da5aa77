"""Strays: processes that ranks started and that outlived them. Their parent is now this process, their subreaper."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Collection

from ddpjob_rank.console import warn
from ddpjob_rank.environment import Env

from ddpjob_supervisor.watch.procfs import Process, children, command_line, has_variable

from .starters import Starter
from .zygote_process import ZYGOTE

ENDING_SECONDS = 5.0
"""A process that still exists this long after SIGKILL is waiting in the kernel, perhaps forever."""

LOOK_SECONDS = 0.01


class Strays:
    """The strays of one supervisor. Its other children belong to the starter, or are older than the supervisor."""

    def __init__(self, starter: Starter, others: Collection[int] = ()) -> None:
        """`others` are at any time the IDs of children that somebody else reaps, besides those of the starter."""
        self._starter = starter
        self._others = others
        self._former = frozenset(children(os.getpid())) - starter.pids
        """Children of the program that became this supervisor by exec(), such as a shell in `sshd & exec …`."""

    async def end(self) -> None:
        """Kills and reaps all strays, including processes that become strays meanwhile.

        A stray that does not end is logged. `reap` reaps it when it ends.
        """
        try:
            async with asyncio.timeout(ENDING_SECONDS):
                while strays := self._living():
                    for pid in strays:
                        with contextlib.suppress(ProcessLookupError):
                            os.kill(pid, signal.SIGKILL)
                    await asyncio.sleep(LOOK_SECONDS)
        except TimeoutError:
            for pid in self._living():
                stray = Process.of(pid)
                warn(
                    f"process {pid} ({stray.name}), which a rank has left behind, does not end (state {stray.state})"
                )

    def reap(self) -> None:
        """Reaps all children that have ended, except for those that somebody else reaps."""
        for pid in set(children(os.getpid())) - self._starter.pids - {*self._others}:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)

    def _living(self) -> set[int]:
        self.reap()
        others = set(children(os.getpid())) - self._starter.pids - {*self._others} - self._former
        # Children from before this supervisor's start may also leave processes behind. So only processes of ranks are
        # killed.
        return {pid for pid in others if not self._former or _is_of_a_rank(pid)}


def _is_of_a_rank(pid: int) -> bool:
    """Whether a rank has started the process, by exec() or by a fork of a process forked from the zygote."""
    return has_variable(pid, Env.HEARTBEAT) or ZYGOTE in command_line(pid)
