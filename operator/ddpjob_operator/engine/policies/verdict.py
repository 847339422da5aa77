"""The verdict of a policy, and the times at which the policy may decide differently."""

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
    """A policy's decision: a status and its message, the actions that it authorises, and when to look again."""

    status: DDPJobStatus
    message: str | None
    """None: the last message is still valid."""
    actions: tuple[Action, ...] = ()
    wake_at: datetime | None = None
    blocked: Obstacle | None = None
    """What keeps the job from continuing."""
    queued: Waiting | None = None
    """Why the job waits in its queue, if it does."""
    events: tuple[Event, ...] = ()
    """Events that are not caused by a condition that becomes true."""


Times = Iterable[datetime | None]
"""Moments at which a decision may change. Some may be None or past."""


def never(_: View) -> Times:
    """Returns no times: for a policy whose answer never changes merely because time has passed."""
    return ()


@dataclass(frozen=True, slots=True)
class Policy:
    """A policy, which handles one case in a job's life, at its place in the chain."""

    decides: Callable[[View], Verdict | None]
    """Looks at the whole present state and decides, or returns None to leave the decision to the next policy."""
    here: str
    """Why the policy comes at this place in the chain, between the previous and the next policy."""
    due: Callable[[View], Times] = never
    """When the policy's answer may change merely because time has passed."""

    @property
    def name(self) -> str:
        """The name of the policy's function."""
        return self.decides.__name__
