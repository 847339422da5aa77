"""The line for nodes: which jobs lack some, and which of them comes first.

The first keeps the nodes that it holds, and the others give way to it. So all that a job has to know is whether it is
the first, and few are told when that changes.

It is kept in memory alone: a process that has just begun to lead has it once each job has had a look.
"""

from dataclasses import dataclass
from datetime import datetime

from ddpjob_operator.engine import InLine

from .store import Key, Mark


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """A place in line: the smaller one comes first."""

    later: int
    """The smaller the higher the priority of the job's pods."""
    since: datetime
    """When the job was created."""
    uid: str


class WaitingLine:
    """The jobs that lack nodes."""

    def __init__(self, mark: Mark) -> None:
        """`mark` queues a look at a job for which it matters that another one is the first now."""
        self._mark = mark
        self._places: dict[Key, tuple[Place, InLine]] = {}
        self._first: Key | None = None

    def is_behind(self, key: Key, place: Place) -> bool:
        """Whether another job comes before one that has, or would have, this place."""
        return self._first not in {None, key} and self._places[self._first][0] < place

    def priority(self, key: Key) -> int:
        """The priority of a job's pods as it was last known."""
        return -self._places[key][0].later if key in self._places else 0

    def put(self, key: Key, place: Place, how: InLine) -> None:
        """The job lacks nodes."""
        self._places[key] = place, how
        first = self._first
        if first is None or place < self._places[first][0]:
            self._lead(key)
        elif key == first:  # Its priority may have changed.
            self._lead_next()

    def leave(self, key: Key) -> None:
        """The job lacks no nodes."""
        self._places.pop(key, None)
        if key == self._first:
            self._lead_next()

    def _lead_next(self) -> None:
        self._lead(min(self._places, key=lambda key: self._places[key][0], default=None))

    def _lead(self, key: Key | None) -> None:
        """The former first may have to give way now, and the new one may come back."""
        former, self._first = self._first, key
        if former == key:
            return
        if former in self._places:
            self._mark(former)
        if key is not None and self._places[key][1] is InLine.AWAY:
            self._mark(key)
