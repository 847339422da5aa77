"""The jobs that have a history in a place, the newest first, from the names in its index alone."""

import heapq
import re
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain, islice

from .places import HistoryPlace, PlaceError
from .segment_names import OBJECT

JOBS = "_jobs"
LAST_MOMENT = 10**13 - 1
MOST_JOBS = 10_000
"""How many jobs are listed."""
MOST_NAMESPACES = 1000
"""In how many namespaces jobs are looked for: each takes a request."""
ENTRY = re.compile(
    r"(?P<left>\d{13})_(?P<uid>[a-z0-9][a-z0-9.-]{0,252})_(?P<name>[a-z0-9][a-z0-9.-]{0,252})"
    r"(?:_(?P<result>succeeded|stopped|failed))?",
    re.ASCII,
)


@dataclass(frozen=True, slots=True)
class KeptJob:
    """A job that has a history."""

    namespace: str
    name: str
    uid: str
    began: float
    """In seconds since the epoch; 0 if it is not known."""
    result: str = ""
    """`Succeeded`, `Stopped` or `Failed`; empty if it still runs, or if its node 0 was lost."""
    entries: tuple[str, ...] = ()
    """Its files in the index."""

    @property
    def moment(self) -> str:
        """When it began."""
        return datetime.fromtimestamp(self.began, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


Unreadable = dict[str, str]
"""Gets a sentence on each namespace that is left out, because it cannot be read. It may be somebody else's folder."""


def kept_jobs(
    place: HistoryPlace, namespaces: Iterable[str], unreadable: Unreadable | None = None
) -> Iterator[KeptJob]:
    """The jobs of namespaces, the newest first. Pages of the index are read when they are needed.

    The first page of each namespace is read in any case, of several namespaces at the same time if the place permits.

    Raises:
        PlaceError: The place cannot be read, or one of the namespaces, unless `unreadable` gets these.
    """
    chosen = [*islice(namespaces, MOST_NAMESPACES + 1)]
    if len(chosen) > MOST_NAMESPACES and unreadable is not None:
        unreadable[""] = f"there are more namespaces; only the first {MOST_NAMESPACES:,} were looked at"
    found = (_of_namespace(place, name, unreadable) for name in chosen[:MOST_NAMESPACES])
    with ThreadPoolExecutor(place.at_once) as pool:
        begun = [*pool.map(_begun, found)]
    return heapq.merge(*begun, key=lambda job: -job.began)


def _begun(jobs: Iterator[KeptJob]) -> Iterator[KeptJob]:
    """The same jobs, of which the first one has been read."""
    first = next(jobs, None)
    return jobs if first is None else chain([first], jobs)


@contextmanager
def left_out_if_unreadable(namespace: str, unreadable: Unreadable | None) -> Iterator[None]:
    """Lets the block end when it cannot read a namespace.

    Raises:
        PlaceError: It cannot read the namespace, and there is no `unreadable`.
    """
    try:
        yield
    except PlaceError as error:
        if unreadable is None:
            raise
        unreadable.setdefault(namespace, f"namespace {namespace} is left out: {error}")


def _of_namespace(place: HistoryPlace, namespace: str, unreadable: Unreadable | None) -> Iterator[KeptJob]:
    with left_out_if_unreadable(namespace, unreadable):
        yield from _listed(place, namespace)


def _listed(place: HistoryPlace, namespace: str) -> Iterator[KeptJob]:
    job: KeptJob | None = None
    for name in place.first_files(f"{namespace}/{JOBS}"):
        if not (entry := ENTRY.fullmatch(name)):
            continue
        result = (entry["result"] or "").capitalize()
        if job is not None and (job.uid, job.name) == (entry["uid"], entry["name"]):
            job = KeptJob(namespace, job.name, job.uid, job.began, result or job.result, (*job.entries, name))
            continue
        if job is not None:
            yield job
        began = (LAST_MOMENT - int(entry["left"])) / 1000
        job = KeptJob(namespace, entry["name"], entry["uid"], began, result, (name,))
    if job is not None:
        yield job


def namespaces_of(place: HistoryPlace) -> list[str]:
    """The namespaces that have a history.

    Raises:
        PlaceError: The place cannot be read.
    """
    return [name for name in place.folders("") if OBJECT.fullmatch(name)]
