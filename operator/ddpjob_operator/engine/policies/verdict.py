"""What one policy says, and when it will have something else to say."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime

from ddpjob_operator.api import DDPJobStatus
from ddpjob_operator.engine.conditions import Obstacle
from ddpjob_operator.engine.decision import Action, Event
from ddpjob_operator.engine.view import View


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one policy wants: a status and a sentence, actions that it authorises, and when to look again."""

    status: DDPJobStatus
    message: str | None
    """None: what was said last still holds."""
    actions: tuple[Action, ...] = ()
    wake_at: datetime | None = None
    blocked: Obstacle | None = None
    """What keeps the job from going on."""
    events: tuple[Event, ...] = ()
    """What a person wants to know and no condition tells by coming true."""


Times = Iterable[datetime | None]
"""Moments, some of which may not be known, or have passed."""


def never(_: View) -> Times:
    """Of a policy that only what happens can move."""
    return ()


@dataclass(frozen=True, slots=True)
class Policy:
    """A chapter of a job's life, at its place in the chain."""

    decides: Callable[[View], Verdict | None]
    """Looks at the whole present state and decides, or leaves it to the next."""
    here: str
    """Why it stands where it stands: before the next one, and after those before."""
    due: Callable[[View], Times] = never
    """When time alone will have it say something else."""

    @property
    def name(self) -> str:
        """As it is called in code."""
        return self.decides.__name__
