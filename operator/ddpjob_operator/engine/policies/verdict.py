"""What one policy says."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from ddpjob_operator.api import DDPJobStatus
from ddpjob_operator.engine.decision import Action, Event
from ddpjob_operator.engine.saying import Obstacle
from ddpjob_operator.engine.view import View


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one policy wants: a status and a sentence, actions that it authorises, and when to look again."""

    status: DDPJobStatus
    message: str
    actions: tuple[Action, ...] = ()
    wake_at: datetime | None = None
    blocked: Obstacle | None = None
    """What keeps the job from going on."""
    events: tuple[Event, ...] = ()
    """What a person wants to know and no condition tells by coming true."""


Policy = Callable[[View], Verdict | None]
"""Looks at the whole present state and decides, or leaves it to the next."""
