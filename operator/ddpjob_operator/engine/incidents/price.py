"""What an incident costs: the budget after it, what it adds to the job's totals, and how long to wait."""

import hashlib
from dataclasses import dataclass
from datetime import datetime, timedelta

from ddpjob_operator.api import Budget, ConditionType, DDPJobSpec, DDPJobStatus, Restart, RestartAction
from ddpjob_operator.engine.changes import StatusChanges

JITTER = 0.2
"""A wait is lengthened or shortened by up to this fraction, so that jobs that failed together do not all come back
together."""


@dataclass(frozen=True, slots=True)
class Price:
    """What an incident costs a job."""

    budget: Budget
    """The budget after it is paid."""
    restarts: int = 0
    """Restarts that it adds to the job's total; negative if one is given back."""
    disruptions: int = 0

    def paid(self, status: DDPJobStatus) -> StatusChanges:
        """The fields of the status that count it."""
        return {
            "restarts": status.restarts + self.restarts,
            "disruptions": status.disruptions + self.disruptions,
            "budget": self.budget,
        }


def price_of(action: str, found: Budget) -> Price:
    """What an incident that is answered by this action costs, if `found` is the budget before it."""
    counts, free = action is RestartAction.RESTART, action is RestartAction.RESTART_FREE
    after = Budget(used=found.used + counts, disruptions=found.disruptions + free, streak=found.streak + 1)
    return Price(after, restarts=int(counts), disruptions=int(free))


def refund(budget: Budget) -> Price:
    """The price that corrects the last incident, if it was counted as a restart and turns out to be free."""
    after = Budget(used=budget.used - 1, disruptions=budget.disruptions + 1, streak=budget.streak)
    return Price(after, restarts=-1, disruptions=1)


def in_a_row(budget: Budget, incidents: int) -> Budget:
    """The budget with this number of incidents in a row, which decides the backoff."""
    return Budget(used=budget.used, disruptions=budget.disruptions, streak=incidents)


def too_many_disruptions(restart: Restart, budget: Budget) -> bool:
    """Whether the limit on disruptions, if there is one, is exceeded."""
    return restart.max_disruptions is not None and budget.disruptions > restart.max_disruptions


def present(spec: DDPJobSpec, status: DDPJobStatus, now: datetime) -> Budget:
    """The budget before an incident: fully restored once all ranks have run for a whole window.

    If supervisors report steps, a step must have finished in that time: a gang that only waits is not healthy.
    """
    running = status.condition(ConditionType.RUNNING)
    if running is None or running.status != "True":
        return status.bookkeeping.budget
    since = running.last_transition_time
    last_step = status.progress.last_step_time if status.progress else None
    reported = status.bookkeeping.supervised and not status.is_true(ConditionType.PROGRESS_UNKNOWN)
    stands = reported and last_step is not None and last_step < since
    long_enough = now - since >= timedelta(seconds=spec.restart.window_seconds)
    return Budget() if long_enough and not stands else status.bookkeeping.budget


def backoff(restart: Restart, streak: int, key: str) -> timedelta:
    """The wait before the next attempt after `streak` incidents in a row: doubled each time, bounded, with jitter.

    The jitter comes from `key`, so that deciding twice gives the same wait.
    """
    doublings = min(streak - 1, 32)  # Without a bound, Python's integers would grow without limit.
    seconds = min(restart.backoff_seconds * 2**doublings, restart.max_backoff_seconds)
    return timedelta(seconds=seconds * (1 - JITTER * share(f"{key}/{streak}")))


def share(key: str) -> float:
    """A number from 0 to 1 that depends on the key alone, and differs from key to key."""
    return int.from_bytes(hashlib.sha256(key.encode()).digest()[:4]) / 2**32
