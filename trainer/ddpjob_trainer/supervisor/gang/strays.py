"""Strays: processes that came of ranks and outlived them. This process, their subreaper, is their parent by now."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Set as AbstractSet

from ddpjob_trainer.console import warn
from ddpjob_trainer.supervisor.watching.procfs import Process, children

ENDING_SECONDS = 5.0
"""Who has not gone after SIGKILL by then waits in the kernel, perhaps for ever."""

LOOK_SECONDS = 0.01


async def end_strays(known: AbstractSet[int]) -> None:
    """Ends and reaps them all, and what comes to light when its parent has gone; `known` are children of other kinds.

    One that does not end is told of, and reaped once it does.
    """
    try:
        async with asyncio.timeout(ENDING_SECONDS):
            while strays := _living_strays(known):
                for pid in strays:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                await asyncio.sleep(LOOK_SECONDS)
    except TimeoutError:
        for pid in _living_strays(known):
            left = Process.of(pid)
            warn(f"process {pid} ({left.name}), which a rank has left behind, does not end (state {left.state})")


def reap_strays(known: AbstractSet[int]) -> None:
    """Reaps what has ended among them."""
    for pid in set(children(os.getpid())) - known:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)


def _living_strays(known: AbstractSet[int]) -> set[int]:
    reap_strays(known)
    return set(children(os.getpid())) - known
