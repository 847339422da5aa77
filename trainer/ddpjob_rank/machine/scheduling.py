"""How the kernel divides cores among the threads of ranks."""

import os
from contextlib import suppress
from pathlib import Path

from ddpjob_rank.environment import NCCL

NVIDIA = Path("/dev/nvidiactl")
"""There wherever a process may use a GPU of NVIDIA's."""


def run_as_batch(backend: str | None, nvidia: Path = NVIDIA) -> None:
    """Puts this thread, and all that it starts, under SCHED_BATCH, if the system has it, unless NCCL communicates.

    `backend`: what is asked for; None: it depends on whether there are GPUs.

    Under it a thread that wakes up lets the running one go on, instead of preempting it. gloo's event loop is woken
    by each message. When it took the core of the thread that was sending, which held the connection's lock, it asked
    for the lock again and again until the scheduler's next tick: up to 4 ms without progress.

    Any policy other than the usual one is somebody's choice: started with `chrt --idle` the ranks would otherwise
    leave no time to their own supervisor.

    With NCCL there is no such loop, and the thread that gives the GPU work should run at once.
    """
    if backend == NCCL or (backend is None and nvidia.exists()):
        return
    if hasattr(os, "SCHED_BATCH") and os.sched_getscheduler(0) == os.SCHED_OTHER:
        with suppress(OSError):  # Forbidden, for example by a seccomp profile: then it stays as it was.
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
