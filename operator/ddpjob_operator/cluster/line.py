"""The lines of jobs that lack Kubernetes nodes, and their order.

Jobs that ask for the same kind of nodes stand in one line. The first keeps the nodes that it holds, and the others
give way to it. So a job's decision depends only on how many jobs are ahead of it and when the line last moved, and a
change of the line requests rounds of only a few jobs.

The lines are kept in memory only: after an election they are complete once each job has had a round.
"""

from datetime import datetime
from typing import NamedTuple

from ddpjob_operator.engine import Ahead, InLine

from .store import Key, Mark


class Place(NamedTuple):
    """A job's place in a line: of the places in one line, the smallest comes first."""

    kind: str
    """The kind of Kubernetes nodes that the job asks for."""
    later: int
    """The negated priority of the job's pods: a job of higher priority comes earlier."""
    since: datetime
    """When the job was created."""
    uid: str


class WaitingLines:
    """The jobs that lack nodes."""

    def __init__(self, mark: Mark) -> None:
        """`mark` requests a round of a job: of those that are affected when the first job in their line changes."""
        self._mark = mark
        self._places: dict[Key, tuple[Place, InLine]] = {}
        self._firsts: dict[str, tuple[Key, InLine, datetime]] = {}
        """The first job of each line, by the kind of nodes.

        The time is when the line last moved: when this job became the first, or when its `InLine` last changed.
        """

    def __bool__(self) -> bool:
        return bool(self._places)

    def ahead(self, key: Key, place: Place) -> Ahead | None:
        """The jobs ahead of a job that has, or would have, this place; None if it is the first."""
        jobs = sum(
            other.kind == place.kind and other < place
            for other_key, (other, _) in self._places.items()
            if other_key != key
        )
        return Ahead(jobs, self._firsts[place.kind][2]) if jobs else None

    def priority(self, key: Key) -> int:
        """The last known priority of a job's pods; 0 if the job is in no line."""
        return -self._places[key][0].later if key in self._places else 0

    def put(self, key: Key, place: Place, how: InLine, now: datetime) -> None:
        """Puts a job that lacks nodes into its line, or updates its place."""
        former, _ = self._places.get(key, (place, how))
        if former.kind != place.kind:
            self.leave(key, now)
        self._places[key] = place, how
        self._update(place.kind, now)

    def leave(self, key: Key, now: datetime) -> None:
        """Takes a job that lacks no nodes, or no longer does, out of its line."""
        former, _ = self._places.pop(key, (None, None))
        if former is not None:
            self._update(former.kind, now)

    def _update(self, kind: str, now: datetime) -> None:
        """Finds out anew which job of a line is the first, and requests rounds of the jobs that this affects.

        A job that is no longer the first may have to give way; the new first job, if it gave way, may try again.
        """
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
