"""The lines of jobs that lack Kubernetes nodes, and their order.

Jobs that request the same kind of nodes share a line. The first job keeps the nodes that it holds, and the others
give way to it. The decision on a job depends only on how many jobs are ahead of it and when the line last moved. So
when a line changes, only a few jobs need a round.

The lines exist only in memory. After an election they are complete as soon as each job has had a round.
"""

from datetime import datetime
from typing import NamedTuple

from ddpjob_operator.engine import Ahead, InLine

from .store import Key, Mark


class Place(NamedTuple):
    """A job's place in a line. The job with the smallest place in a line comes first."""

    kind: str
    """The kind of Kubernetes nodes that the job requests."""
    later: int
    """The negated priority of the job's pods, so that jobs with a higher priority come earlier."""
    since: datetime
    """When the job was created."""
    uid: str


class WaitingLines:
    """The jobs that lack nodes."""

    def __init__(self, mark: Mark) -> None:
        """`mark` requests a round of a job. It is called for each job that a change of its line affects."""
        self._mark = mark
        self._places: dict[Key, tuple[Place, InLine]] = {}
        self._firsts: dict[str, tuple[Key, InLine, datetime]] = {}
        """The first job of each line, by the kind of nodes.

        The time is when the line last moved, because this job became the first or its `InLine` changed.
        """

    def __bool__(self) -> bool:
        return bool(self._places)

    def ahead(self, key: Key, place: Place) -> Ahead | None:
        """Returns the jobs ahead of a job that has, or would have, this place; None if it is the first."""
        jobs = sum(
            other.kind == place.kind and other < place
            for other_key, (other, _) in self._places.items()
            if other_key != key
        )
        return Ahead(jobs, self._firsts[place.kind][2]) if jobs else None

    def priority(self, key: Key) -> int:
        """Returns the last known priority of a job's pods; 0 if the job is in no line."""
        return -self._places[key][0].later if key in self._places else 0

    def put(self, key: Key, place: Place, how: InLine, now: datetime) -> None:
        """Puts a job that lacks nodes into its line, or updates its place."""
        former, _ = self._places.get(key, (place, how))
        if former.kind != place.kind:
            self.leave(key, now)
        self._places[key] = place, how
        self._update(place.kind, now)

    def leave(self, key: Key, now: datetime) -> None:
        """Removes a job from its line, if it is in one, because it does not lack nodes, or no longer does."""
        former, _ = self._places.pop(key, (None, None))
        if former is not None:
            self._update(former.kind, now)

    def _update(self, kind: str, now: datetime) -> None:
        """Determines the first job of a line again, and requests rounds of the jobs that the change affects.

        A job that is no longer the first may have to give way. If the new first job gave way before, it may try
        again.
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
