"""Strays: descendants of ranks that have outlived them. This process, their subreaper, is now their parent."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Set as AbstractSet

from ddpjob_rank.console import warn

from ddpjob_supervisor.watch.procfs import Process, children

ENDING_SECONDS = 5.0
"""A process that still exists this long after SIGKILL is waiting in the kernel, perhaps forever."""

LOOK_SECONDS = 0.01


async def end_strays(known: AbstractSet[int]) -> None:
    """Kills and reaps all strays, also those that become strays meanwhile; `known` are this process's other children.

    A stray that does not end is reported. `reap_strays` reaps it once it ends.
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
            stray = Process.of(pid)
            warn(f"process {pid} ({stray.name}), which a rank has left behind, does not end (state {stray.state})")


def reap_strays(known: AbstractSet[int]) -> None:
    """Reaps the strays that have ended; `known` are the other children."""
    for pid in set(children(os.getpid())) - known:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)


def _living_strays(known: AbstractSet[int]) -> set[int]:
    reap_strays(known)
    return set(children(os.getpid())) - known
