"""A plan: what goes wrong in one life, and in what that life may differ from an undisturbed one."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from . import clock
from .faults import Fault
from .life import Life
from .lives import LONG
from .obstacles import Obstacle


class Family(StrEnum):
    """The families of faults, as the page names them."""

    NONE = "Undisturbed"
    CRASH = "Crash"
    LOST = "Lost answer"
    ERROR = "Error"
    WATCH = "Broken watch"
    UNSEEN = "Unseen event"
    STALE = "Stale view"
    REMADE = "Recreated"
    REFUSED = "Refusal"
    OWNED = "Ownership"
    CLOCK = "Clock"
    LEASE = "Leadership"


class Happening(StrEnum):
    """Events that can happen between two stages of a life."""

    RESTART = "the operator is killed and started again"
    TRAVEL_BACK = "the operator is killed, and what it lists at its start is what was so before"
    REMADE = "the job is deleted and recreated with the same name"
    REMADE_UNSEEN = "the operator is killed, the job is deleted and recreated, and the operator is started"


@dataclass(frozen=True, slots=True)
class Differs:
    """The allowed differences of a life from an undisturbed one, and the reason for them."""

    why: str = ""
    more: Mapping[str, int] = field(default_factory=dict)
    """How many more objects of each kind may be created and deleted, or, below 0, how many fewer: `pods 0/1`."""
    ends: frozenset[str] = frozenset()
    """Fields of the status, or `conditions.TYPE`, whose final values may differ."""


ALIKE = Differs()
BLOCKED = Differs("that it was blocked, and no longer is, is told", ends=frozenset({"conditions.Blocked"}))


@dataclass(frozen=True, slots=True)
class Plan:
    """One life, and what goes wrong in it."""

    name: str
    family: Family
    place: str = ""
    """Where the fault strikes, in the words of the table of writes."""
    faults: tuple[Fault, ...] = ()
    after: str = ""
    """The stage after which `happens` takes place."""
    happens: Happening | None = None
    """What happens after that stage."""
    obstacle: Obstacle | None = None
    """An obstacle for one stage."""
    flags: tuple[str, ...] = ()
    """More flags of the operator."""
    differs: Differs = ALIKE
    life: Life = LONG

    @property
    def injected(self) -> str:
        """What goes wrong, in a few words."""
        others = [self.happens] if self.happens else [str(self.obstacle)] if self.obstacle else []
        faults = " and ".join(dict.fromkeys(map(str, self.faults)))
        return ", ".join([*others, *([faults] if faults else [])])

    @property
    def lacks(self) -> str | None:
        """What this machine lacks for the plan; None if it lacks nothing."""
        return clock.what_is_lacking() if self.obstacle and self.obstacle.clock else None

    def __str__(self) -> str:
        return self.name
