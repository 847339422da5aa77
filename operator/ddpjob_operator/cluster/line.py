"""The lines for nodes: which jobs lack some, and which of them come first.

Jobs that ask for the same kind of nodes stand in one line. The first keeps the nodes that it holds, and the others
give way to it. So all that a job has to know is how many are ahead of it and when the line last moved, and few are
told when that changes.

The lines are kept in memory alone: a process that has just begun to lead has them once each job has had a look.
"""

from datetime import datetime
from typing import NamedTuple

from ddpjob_operator.engine import Ahead, InLine

from .store import Key, Mark


class Place(NamedTuple):
    """A place in a line: the smaller one comes first."""

    kind: str
    """The kind of Kubernetes nodes that the job asks for."""
    later: int
    """The smaller the higher the priority of the job's pods."""
    since: datetime
    """When the job was created."""
    uid: str


class WaitingLines:
    """The jobs that lack nodes."""

    def __init__(self, mark: Mark) -> None:
        """`mark` queues a look at a job for which it matters that another one is the first now."""
        self._mark = mark
        self._places: dict[Key, tuple[Place, InLine]] = {}
        self._firsts: dict[str, tuple[Key, InLine, datetime]] = {}
        """By the kind of nodes, with the time at which it became the first, or last found a node or lost one."""

    def __bool__(self) -> bool:
        return bool(self._places)

    def ahead(self, key: Key, place: Place) -> Ahead | None:
        """The jobs ahead of one that has, or would have, this place."""
        jobs = sum(one.kind == place.kind and one < place for other, (one, _) in self._places.items() if other != key)
        return Ahead(jobs, self._firsts[place.kind][2]) if jobs else None

    def priority(self, key: Key) -> int:
        """The priority of a job's pods as it was last known."""
        return -self._places[key][0].later if key in self._places else 0

    def put(self, key: Key, place: Place, how: InLine, now: datetime) -> None:
        """The job lacks nodes."""
        former, _ = self._places.get(key, (place, how))
        if former.kind != place.kind:
            self.leave(key, now)
        self._places[key] = place, how
        self._update(place.kind, now)

    def leave(self, key: Key, now: datetime) -> None:
        """The job lacks no nodes."""
        former, _ = self._places.pop(key, (None, None))
        if former is not None:
            self._update(former.kind, now)

    def _update(self, kind: str, now: datetime) -> None:
        """If another one is the first now, the former may have to give way, and the new one may come back."""
        former, how_before, since = self._firsts.pop(kind, (None, None, now))
        line = [(place, key) for key, (place, _) in self._places.items() if place.kind == kind]
        if not line:
            return
        _, first = min(line)
        how = self._places[first][1]
        moved = (former, how_before) != (first, how)
        self._firsts[kind] = first, how, now if moved else since
        if former in self._places and former != first:
            self._mark(former)
        if moved and how.away:
            self._mark(first)
