"""The price of an incident: the budget after it, what it adds to the job's totals, and the backoff."""

import hashlib
from dataclasses import dataclass
from datetime import datetime, timedelta

from ddpjob_operator.api import Budget, ConditionType, DDPJobSpec, DDPJobStatus, Restart, RestartAction
from ddpjob_operator.engine.changes import StatusChanges

JITTER = 0.2
"""Waits are changed by up to this fraction, so that jobs that failed at the same time do not all restart at the same
time."""


@dataclass(frozen=True, slots=True)
class Price:
    """The price of an incident."""

    budget: Budget
    """The budget after the price is paid."""
    restarts: int = 0
    """How many restarts to add to the job's total; negative for a refund."""
    disruptions: int = 0

    def paid(self, status: DDPJobStatus) -> StatusChanges:
        """Returns the fields of the status that count this price."""
        return {
            "restarts": status.restarts + self.restarts,
            "disruptions": status.disruptions + self.disruptions,
            "budget": self.budget,
        }


def price_of(action: str, found: Budget) -> Price:
    """Returns the price of an incident that is answered by this action. `found` is the budget before the incident."""
    counts, free = action is RestartAction.RESTART, action is RestartAction.RESTART_FREE
    after = Budget(used=found.used + counts, disruptions=found.disruptions + free, streak=found.streak + 1)
    return Price(after, restarts=int(counts), disruptions=int(free))


def refund(budget: Budget) -> Price:
    """Returns the price that corrects the last incident, if it was counted as a restart but turns out to be free."""
    after = Budget(used=budget.used - 1, disruptions=budget.disruptions + 1, streak=budget.streak)
    return Price(after, restarts=-1, disruptions=1)


def in_a_row(budget: Budget, incidents: int) -> Budget:
    """Returns the budget with this number of incidents in a row, which determines the backoff."""
    return Budget(used=budget.used, disruptions=budget.disruptions, streak=incidents)


def too_many_disruptions(restart: Restart, budget: Budget) -> bool:
    """Whether the limit on disruptions, if there is one, is exceeded."""
    return restart.max_disruptions is not None and budget.disruptions > restart.max_disruptions


def present(spec: DDPJobSpec, status: DDPJobStatus, now: datetime) -> Budget:
    """Returns the present budget."""
    restored = restored_at(spec, status)
    return status.bookkeeping.budget if restored is None or now < restored else Budget()


def restored_at(spec: DDPJobSpec, status: DDPJobStatus) -> datetime | None:
    """Returns when the budget is fully restored if all ranks go on running: after a whole window.

    If supervisors report steps, a step must have finished since all ranks run, because a gang that only waits is not
    healthy. Otherwise returns None.
    """
    running = status.condition(ConditionType.RUNNING)
    if running is None or running.status != "True":
        return None
    since = running.last_transition_time
    last_step = status.progress.last_step_time if status.progress else None
    reported = status.bookkeeping.supervised and not status.is_true(ConditionType.PROGRESS_UNKNOWN)
    stands = reported and last_step is not None and last_step < since
    return None if stands else since + timedelta(seconds=spec.restart.window_seconds)


def backoff(restart: Restart, streak: int, key: str) -> timedelta:
    """Returns the wait after `streak` incidents in a row, which doubles each time up to a maximum, with jitter.

    The jitter is derived from `key`, so that a repeated decision results in the same wait.
    """
    doublings = min(streak - 1, 32)  # Without a bound, Python's integers would grow without limit.
    seconds = min(restart.backoff_seconds * 2**doublings, restart.max_backoff_seconds)
    return timedelta(seconds=seconds * (1 - JITTER * share(f"{key}/{streak}")))


def share(key: str) -> float:
    """Returns a pseudorandom number from 0 to 1 that depends only on the key."""
    return int.from_bytes(hashlib.sha256(key.encode()).digest()[:4]) / 2**32
