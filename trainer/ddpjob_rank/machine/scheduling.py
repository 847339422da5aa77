"""Chooses how the kernel divides cores among the threads of ranks."""

import os
from contextlib import suppress
from pathlib import Path

from ddpjob_rank.environment import NCCL

NVIDIA = Path("/dev/nvidiactl")
"""This device exists wherever a process may use an NVIDIA GPU."""


def run_as_batch(backend: str | None, nvidia: Path = NVIDIA) -> None:
    """Sets SCHED_BATCH for this thread and everything that it starts, if the system has it, unless NCCL is used.

    `backend` is the requested backend. None means NCCL if there are NVIDIA GPUs.

    Under SCHED_BATCH, a thread that wakes up does not preempt the running thread. gloo's event loop wakes up for each
    message. If it took the core of the sending thread, which held the connection's lock, it would try to take the
    lock again and again until the scheduler's next tick: up to 4 ms without progress.

    A policy other than the default is kept, because somebody has chosen it: if everything was started with `chrt
    --idle`, ranks under SCHED_BATCH would leave no time to their own supervisor.

    NCCL has no such loop, and a thread that gives work to the GPU should run without delay.
    """
    if backend == NCCL or (backend is None and nvidia.exists()):
        return
    if hasattr(os, "SCHED_BATCH") and os.sched_getscheduler(0) == os.SCHED_OTHER:
        # This may be forbidden, for example by a seccomp profile. If so, the policy stays as it is.
        with suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
