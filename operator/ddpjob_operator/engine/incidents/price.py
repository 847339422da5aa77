"""The restart budget: what an incident costs, and how long to wait after it."""

import hashlib
from datetime import datetime, timedelta

from ddpjob_operator.api import Budget, ConditionType, DDPJobSpec, DDPJobStatus, Restart, RestartAction

JITTER = 0.2
"""A wait is changed by up to this part of it, so that jobs that failed together do not all come back together."""


def charged(budget: Budget, action: str) -> Budget:
    """The budget after one more incident."""
    return Budget(
        used=budget.used + (action is RestartAction.RESTART),
        disruptions=budget.disruptions + (action is RestartAction.RESTART_FREE),
        streak=budget.streak + 1,
    )


def in_a_row(budget: Budget, incidents: int) -> Budget:
    """The budget with so many incidents in a row, which the backoff goes by."""
    return Budget(used=budget.used, disruptions=budget.disruptions, streak=incidents)


def too_many_disruptions(restart: Restart, budget: Budget) -> bool:
    """Whether there is a limit to disruptions, and it is exceeded."""
    return restart.max_disruptions is not None and budget.disruptions > restart.max_disruptions


def excused(budget: Budget) -> Budget:
    """The budget where the last incident was counted, and turns out to be free."""
    return Budget(used=budget.used - 1, disruptions=budget.disruptions + 1, streak=budget.streak)


def present(spec: DDPJobSpec, status: DDPJobStatus, now: datetime) -> Budget:
    """The budget as an incident finds it: untouched again once all ranks have run for a whole window.

    Where supervisors report steps, one must have been finished since: a gang that only waits is not healthy.
    """
    running = status.condition(ConditionType.RUNNING)
    if running is None or running.status != "True":
        return status.budget
    since = running.last_transition_time
    last_step = status.progress.last_step_time if status.progress else None
    reported = status.supervised and not status.is_true(ConditionType.PROGRESS_UNKNOWN)
    stands = reported and last_step is not None and last_step < since
    long_enough = now - since >= timedelta(seconds=spec.restart.window_seconds)
    return Budget() if long_enough and not stands else status.budget


def backoff(restart: Restart, streak: int, key: str) -> timedelta:
    """The wait before the next attempt after `streak` incidents in a row: doubled each time, bounded, with jitter.

    The jitter comes from `key`, so that deciding twice gives the same wait.
    """
    doublings = min(streak - 1, 32)
    seconds = min(restart.backoff_seconds * 2**doublings, restart.max_backoff_seconds)
    return timedelta(seconds=seconds * (1 - JITTER * share(f"{key}/{streak}")))


def share(key: str) -> float:
    """A number from 0 to 1 that depends on the key alone, and differs from key to key."""
    return int.from_bytes(hashlib.sha256(key.encode()).digest()[:4]) / 2**32
