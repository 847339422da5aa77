"""What a life of a job is: stages, by a user or by fate, and what an operator writes in them."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from .faults import On
from .witness import Manifest, Witness

NAME = "life"


class User(Protocol):
    """Who makes, changes and deletes things in the namespace."""

    witness: Witness

    async def create(self, kind: str, body: Manifest) -> None:
        """Makes something."""

    async def merge(self, kind: str, name: str, body: Manifest) -> None:
        """Changes something."""

    async def make_room(self, nodes: int) -> None:
        """So many nodes are for this namespace."""


Act = Callable[[User], Awaitable[None]]
Reached = Callable[[Witness], bool]


@dataclass(frozen=True, slots=True)
class Stage:
    """What a user or fate does, and what is to come of it."""

    name: str
    act: Act
    reached: Reached


@dataclass(frozen=True, slots=True)
class Row:
    """A write of the operator, and when it is to come."""

    stage: str
    name: str
    on: On


@dataclass(frozen=True, slots=True)
class Life:
    """What happens in it, and what an operator writes."""

    name: str
    stages: tuple[Stage, ...]
    """After the last but one nothing is left to do; the last one takes the job away."""
    writes: tuple[Row, ...]
    more_statuses: int = 0
    """So many more may come, since a user changes something of no account."""
