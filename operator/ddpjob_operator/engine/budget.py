"""The restart budget: what an incident costs, and how long to wait after it."""

import hashlib
from datetime import datetime, timedelta

from ddpjob_operator.api import Budget, ConditionType, DDPJobSpec, DDPJobStatus, Restart

JITTER = 0.2
"""A wait is shortened by up to this part of it, so that jobs that failed together do not all come back together."""


def charged(budget: Budget, *, counted: bool) -> Budget:
    """The budget after one more incident."""
    return Budget(used=budget.used + counted, streak=budget.streak + 1)


def present(spec: DDPJobSpec, status: DDPJobStatus, now: datetime) -> Budget:
    """The budget as an incident finds it: untouched again once all ranks have run for a whole window."""
    running = status.condition(ConditionType.RUNNING)
    window = timedelta(seconds=spec.restart.window_seconds)
    healthy = running is not None and running.status == "True" and now - running.last_transition_time >= window
    return Budget() if healthy else status.budget


def backoff(restart: Restart, streak: int, key: str) -> timedelta:
    """The wait before the next attempt after `streak` incidents in a row: doubled each time, bounded, with jitter.

    The jitter comes from `key`, so that deciding twice gives the same wait.
    """
    doublings = min(streak - 1, 32)
    seconds = min(restart.backoff_seconds * 2**doublings, restart.max_backoff_seconds)
    share = int.from_bytes(hashlib.sha256(f"{key}/{streak}".encode()).digest()[:4]) / 2**32
    return timedelta(seconds=seconds * (1 - JITTER * share))
