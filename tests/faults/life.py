"""The parts of a job's life: its stages, each caused by a user or an outside event, and the operator's writes."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from .faults import On
from .witness import Manifest, Witness

NAME = "life"


class User(Protocol):
    """Creates, changes and deletes objects in the namespace."""

    witness: Witness

    async def create(self, kind: str, body: Manifest) -> None:
        """Creates an object."""

    async def merge(self, kind: str, name: str, body: Manifest) -> None:
        """Changes an object."""

    async def make_room(self, nodes: int) -> None:
        """Labels this number of nodes for this namespace."""


Act = Callable[[User], Awaitable[None]]
Reached = Callable[[Witness], bool]


@dataclass(frozen=True, slots=True)
class Stage:
    """What a user or an outside event does, and the state that it must lead to."""

    name: str
    act: Act
    reached: Reached


@dataclass(frozen=True, slots=True)
class Row:
    """A write of the operator, and the stage in which it is expected."""

    stage: str
    name: str
    on: On


@dataclass(frozen=True, slots=True)
class Life:
    """The stages of a life, and the operator's writes."""

    name: str
    stages: tuple[Stage, ...]
    """After the last stage but one, nothing is left to do. The last stage deletes the job."""
    writes: tuple[Row, ...]
    more_statuses: int = 0
    """The number of additional statuses that may be written if a user changes unimportant fields."""
