"""Removes histories of whole jobs: only of those that have certainly ended, and only files that certainly are theirs.

It can be killed at any time. A job's files in the index go last, so the next call continues.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice

from .job_history import head_of, is_written_by
from .job_index import JOBS, KeptJob
from .places import HistoryPlace, KeptFile, PlaceError, WritablePlace
from .segment_names import NODE, segment_name

MOST_FILES = 100_000
"""How many files of one job are read, and so removed, by one call."""
DAY = 86400.0
QUIET_SECONDS = {"Succeeded": DAY, "Failed": 7 * DAY}
"""How long nothing was written to a job that has certainly ended. After a failure, the operator may start the job
again, and its pods may have to wait. A stopped job may have been suspended, and a job without a result may run."""


@dataclass(frozen=True, slots=True)
class Retention:
    """Which jobs to keep. What is None does not matter."""

    count: int | None = None
    """How many jobs of each name, the newest."""
    seconds: float | None = None
    """Those that were written to more recently than this."""
    size: int | None = None
    """So many of the newest that together they have at most so many bytes."""


@dataclass(slots=True)
class Stock:
    """The jobs of a place, the newest first, and what they take."""

    place: WritablePlace
    jobs: list[KeptJob]
    unreadable: dict[KeptJob, PlaceError] = field(default_factory=dict)
    """The jobs whose folders cannot be read, as far as somebody tried. They may be other users'."""
    uncertain: list[KeptJob] = field(default_factory=list)
    """The jobs that were not to be kept, but may still run."""
    _files: dict[KeptJob, list[KeptFile]] = field(default_factory=dict)

    def files(self, job: KeptJob) -> list[KeptFile]:
        """What is in a job's folder, at most MOST_FILES; nothing if it cannot be read."""
        if job not in self._files:
            self._files[job] = []
            try:
                self._files[job] = [*islice(self.place.tree(folder_of(job)), MOST_FILES)]
            except PlaceError as error:
                self.unreadable[job] = error
        return self._files[job]

    def size(self, job: KeptJob) -> int:
        """How many bytes a job takes."""
        return sum(file.size for file in self.files(job))

    def last(self, job: KeptJob) -> float:
        """When a job was last written to, in seconds since the epoch."""
        return max((file.time for file in self.files(job)), default=job.began)

    def surplus(self, retention: Retention, now: float) -> Iterator[KeptJob]:
        """The jobs that have certainly ended and are not to be kept, the oldest first."""
        seen = Counter[tuple[str, str]]()
        unwanted = set[KeptJob]()
        for job in self.jobs:
            seen[job.namespace, job.name] += 1
            if retention.count is not None and seen[job.namespace, job.name] > retention.count:
                unwanted.add(job)
        if retention.seconds is not None:
            before = now - retention.seconds  # A job that began later was not written to before.
            unwanted |= {job for job in self.jobs if job.began < before and self.last(job) < before}
        total = 0 if retention.size is None else sum(map(self.size, self.jobs))
        for job in reversed(self.jobs):
            too_large = retention.size is not None and total > retention.size
            if not (job in unwanted or too_large):
                continue
            if self.has_ended(job, now):
                total -= self.size(job) if retention.size is not None else 0
                yield job
            elif job not in self.unreadable:
                self.uncertain.append(job)

    def has_ended(self, job: KeptJob, now: float) -> bool:
        """Whether a job certainly runs no more, and never will."""
        quiet = QUIET_SECONDS.get(job.result)
        return quiet is not None and self.last(job) < now - quiet and job not in self.unreadable

    def remove(self, job: KeptJob, say: Callable[[str], None]) -> int:
        """Removes what a job has written. Returns how many bytes that were.

        Raises:
            PlaceError: It cannot be read or removed.
        """
        removed, left, files = 0, 0, self.files(job)
        if job in self.unreadable:
            raise self.unreadable[job]
        for file in files:
            if _is_of(self.place, job, file):
                self.place.remove(file.path)
                removed += file.size
            else:
                left += 1
        self.place.remove_folders(folder_of(job))
        if left:
            say(f"{self.place}/{folder_of(job)} is kept with {left} files that are not certainly this job's")
        if len(files) == MOST_FILES:
            say(f"{self.place}/{folder_of(job)} may have more files than one call removes; the next call continues")
            return removed
        for name in sorted(job.entries):  # The result last: without it, this job would stay in the index.
            self.place.remove(f"{job.namespace}/{JOBS}/{name}")
        return removed


def folder_of(job: KeptJob) -> str:
    """The folder of a job in a place."""
    return f"{job.namespace}/{job.name}/{job.uid}"


def _is_of(place: HistoryPlace, job: KeptJob, file: KeptFile) -> bool:
    """Whether a file's path and its first line say that it is a segment of a job."""
    parts = file.path.removeprefix(f"{folder_of(job)}/").split("/")
    if len(parts) != 3 or not (node := NODE.fullmatch(parts[0])):  # noqa: PLR2004  (node, process, segment)
        return False
    segment = segment_name(*parts)
    return segment is not None and is_written_by(
        head_of(place, file.path),
        {"namespace": job.namespace, "name": job.name, "uid": job.uid, "node": int(node[1])}
        | {"incarnation": segment.incarnation, "attempt": segment.attempt},
    )
