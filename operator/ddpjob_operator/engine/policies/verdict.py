"""What one policy decides, and when it will decide something else."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime

from ddpjob_operator.api import DDPJobStatus
from ddpjob_operator.engine.conditions import Obstacle
from ddpjob_operator.engine.decision import Action, Event
from ddpjob_operator.engine.snapshot import Waiting
from ddpjob_operator.engine.view import View


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one policy decides: a status and a sentence, the actions that it authorises, and when to look again."""

    status: DDPJobStatus
    message: str | None
    """None: the last message still holds."""
    actions: tuple[Action, ...] = ()
    wake_at: datetime | None = None
    blocked: Obstacle | None = None
    """What keeps the job from going on."""
    queued: Waiting | None = None
    """Why the job waits in its queue, if it does."""
    events: tuple[Event, ...] = ()
    """Events that no condition causes by becoming true."""


Times = Iterable[datetime | None]
"""Moments, some of which may be unknown or past."""


def never(_: View) -> Times:
    """The times for a policy whose answer never changes just because time passes: none."""
    return ()


@dataclass(frozen=True, slots=True)
class Policy:
    """One policy: a case in a job's life, at its place in the chain."""

    decides: Callable[[View], Verdict | None]
    """Looks at the whole present state and decides, or leaves the decision to the next policy."""
    here: str
    """Why the policy has this place in the chain: before the next policy, and after those that come before it."""
    due: Callable[[View], Times] = never
    """When time alone will change its answer."""

    @property
    def name(self) -> str:
        """Its function's name."""
        return self.decides.__name__
