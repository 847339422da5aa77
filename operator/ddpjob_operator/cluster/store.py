"""The in-memory store of all jobs and their objects, typed and trimmed to the fields that are needed.

Watches, lists, and the answers to the operator's own writes fill the store. Of two versions of an object, the one
with the higher resource version counts, so that a late event cannot undo a change. If a watch misses a deletion, the
next list reveals it. Each change of an object requests a round of its job.
"""

import asyncio
import logging
import math
import time
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ddpjob_operator.api import DDPJob, ownership
from ddpjob_operator.api.contract import CLASS_LABEL, TRAINER_CONTAINER
from ddpjob_operator.api.ownership import JobRef, Named
from ddpjob_operator.api.spec import CONTROLLER_NAME
from ddpjob_operator.engine import OWNED, Claim, Holder, OwnedKind, claim

from .conversion import Ref, owner_of, pod_of, ref_of
from .kinds import reading
from .kube.objects import JobMeta, JobObject, JobSummary, Object, PodObject, Unreadable
from .serve.metrics import UNREADABLE

if TYPE_CHECKING:
    from ddpjob_operator.engine import Pod

Key = tuple[str, str]
"""An object's namespace and name."""

Mark = Callable[[Key], None]
"""Requests a round of a job."""

Serves = Callable[[str], bool]
"""Returns whether this operator runs the jobs of a namespace."""

LATE_SECONDS = 300.0
"""The minimum time for which the store remembers that an object is gone. Outdated views of the object do not arrive
later than that."""

OBJECTS_PER_TURN = 250
"""How many objects of a list are stored, which takes some milliseconds, before other tasks get a turn."""
PARSED_BYTES = 8 << 20
"""The limit on the JSON of all parsed jobs in the cache. As Python objects they take several times as much memory."""
PARSED_JOBS = 1_000
"""The limit on the number of parsed jobs in the cache. Parsing a small job again takes 0.03 ms, but each parsed job
has some twenty objects that the garbage collector has to examine. With 10,000 jobs the collector stopped everything
for a sixth of a second."""

logger = logging.getLogger(__name__)

O = TypeVar("O", bound=Object)  # noqa: E741  The type of an object as the API server sends it.
T = TypeVar("T")  # The type in which the store keeps the object.


@dataclass(frozen=True)
class StoredJob:
    """The last known version of a job, with packed spec and status."""

    seen: JobObject

    @property
    def metadata(self) -> JobMeta:
        """The job's metadata."""
        return self.seen.metadata

    @property
    def uid(self) -> str:
        """The job's uid."""
        return self.metadata.uid

    @property
    def ref(self) -> JobRef:
        """A reference to the job."""
        return _ref_of_job(self.seen)

    @property
    def deleting(self) -> bool:
        """Whether the job is being deleted. If so, nothing more is created, and Kubernetes deletes its objects."""
        return self.metadata.deletion_timestamp is not None

    @cached_property
    def summary(self) -> JobSummary:
        """A part of the status, cached because each round and each scrape of the metrics reads it."""
        return self.seen.status.read(JobSummary | None) or JobSummary()

    @cached_property
    def ours(self) -> bool:
        """Whether this operator manages the job, cached because each round reads it."""
        return (self.seen.spec.read() or {}).get("managedBy") in {None, CONTROLLER_NAME}

    @property
    def class_name(self) -> str:
        """The job's class, by its label; empty: it has none."""
        return self.metadata.labels.get(CLASS_LABEL, "")

    def claimed_by(self, me: Holder) -> Claim:
        """Returns whether an operator runs the job."""
        summary = self.summary
        holder = Holder(summary.operator, summary.class_name)
        return claim(me, self.class_name, holder, active=bool(summary.start_time))

    @property
    def is_new(self) -> bool:
        """Whether no operator has ever written the job's status."""
        return bool((self.seen.status.read() or {}).get("observedGeneration", 0) < 1)

    @property
    def size(self) -> int:
        """The size of spec and status as JSON, in bytes."""
        return self.seen.spec.size + self.seen.status.size

    def parsed(self) -> DDPJob:
        """Parses the job for the engine.

        Raises:
            pydantic.ValidationError: this version of the operator cannot parse the job.
        """
        spec, status = self.seen.spec, self.seen.status
        return DDPJob.from_dict(
            {"metadata": self._identity, "spec": spec.read(), "status": status.read()},
            # Searching for nulls takes longer than everything else, because a template may have a hundred thousand
            # leaves.
            nulls=spec.has_nulls or status.has_nulls,
        )

    def without_spec(self) -> DDPJob:
        """Parses the job's status, and uses the smallest possible spec in place of its own, which cannot be parsed.

        Raises:
            pydantic.ValidationError: this version of the operator cannot parse the status either.
        """
        spec = {"template": {"spec": {"containers": [{"name": TRAINER_CONTAINER}]}}}
        return DDPJob.from_dict({"metadata": self._identity, "spec": spec, "status": self.seen.status.read()})

    @property
    def _identity(self) -> dict[str, object]:
        metadata = self.metadata
        own = {"name": metadata.name, "namespace": metadata.namespace, "uid": metadata.uid}
        return {**own, "generation": metadata.generation, "annotations": metadata.annotations.of_submission}


class _ParsedJobs:
    """A least-recently-used cache of parsed jobs, ordered by their last round.

    Suspended and finished jobs have no rounds, so they are dropped first, and only their packed form stays. The cache
    holds at most PARSED_JOBS jobs and PARSED_BYTES of JSON, or a single larger job.
    """

    def __init__(self) -> None:
        self._jobs: OrderedDict[Key, tuple[StoredJob, DDPJob]] = OrderedDict()
        self._size = 0

    def job(self, stored: StoredJob) -> DDPJob:
        """Returns this version of the job, parsed. Another version of the job is dropped from the cache."""
        key = (stored.metadata.namespace, stored.metadata.name)
        known = self._jobs.get(key)
        if known is not None and known[0] is stored:
            self._jobs.move_to_end(key)
            return known[1]
        self.forget(key)
        job = stored.parsed()
        self._jobs[key] = stored, job
        self._size += stored.size
        while len(self._jobs) > 1 and (self._size > PARSED_BYTES or len(self._jobs) > PARSED_JOBS):
            self.forget(next(iter(self._jobs)))
        return job

    def forget(self, key: Key) -> None:
        """Drops a job."""
        known = self._jobs.pop(key, None)
        if known is not None:
            self._size -= known[0].size


@dataclass(frozen=True, slots=True)
class _Entry(Generic[T]):
    ref: Ref
    owner: JobRef
    """The job that the object belongs to or, if the object is a job, the job itself."""
    value: T


_value = attrgetter("value")


class _Gone:
    """The objects that are gone: for each uid, the resource version up to which any view of the object is outdated.

    The uids are kept in two generations. When the younger generation is LATE_SECONDS old, it becomes the elder, and
    the former elder is dropped.
    """

    def __init__(self) -> None:
        self._younger: dict[str, float] = {}
        self._elder: dict[str, float] = {}
        self._since = time.monotonic()

    def version(self, uid: str) -> float:
        """Returns the version up to which all views of the object are outdated; 0 if it is not known to be gone."""
        return max(self._younger.get(uid, 0), self._elder.get(uid, 0))

    def add(self, uid: str, version: float) -> None:
        """Records that an object was gone at this resource version."""
        now = time.monotonic()
        if now - self._since > LATE_SECONDS:
            self._younger, self._elder, self._since = {}, self._younger, now
        self._younger[uid] = max(version, self.version(uid))


class Cache(Generic[O, T]):
    """The newest known version of each object of one kind."""

    def __init__(
        self,
        trimmed: Callable[[O], T | None],
        mark: Mark,
        serves: Serves = lambda _: True,
    ) -> None:
        self._serves = serves
        self._trimmed = trimmed
        self._mark = mark
        self._entries: dict[Key, _Entry[T]] = {}
        self._gone = _Gone()

    def get(self, key: Key) -> T | None:
        """Returns the object with this namespace and name."""
        entry = self._entries.get(key)
        return entry.value if entry else None

    def owner_of(self, seen: O) -> JobRef | None:
        """Returns the job that an object belongs to; None if it belongs to no job."""
        return _ref_of_job(seen)

    def all(self) -> list[tuple[Key, T]]:
        """Returns all objects with their names."""
        return [(key, entry.value) for key, entry in self._entries.items()]

    def update(self, seen: O) -> None:
        """Stores an object, unless a newer version of it, or its deletion, is already known.

        An answer or a list may contain the object although a watch has already reported its deletion. An object that
        cannot be processed is ignored, and its previous version stays in the store.
        """
        try:
            self._take(seen)
        except Exception:  # Any exception: one bad object must not end a watch or a round.
            UNREADABLE.labels(type(seen).__name__).inc()
            metadata = seen.metadata
            logger.exception(
                "this is a bug: %s/%s could not be processed and is ignored", metadata.namespace, metadata.name
            )

    def _take(self, seen: O) -> None:
        ref = ref_of(seen)
        key = (ref.namespace, ref.name)
        known = self._entries.get(key)
        if not self._serves(ref.namespace):
            return
        if ref.version <= self._gone.version(ref.uid) or (known is not None and known.ref.version >= ref.version):
            return
        owner = self.owner_of(seen)
        value = None if owner is None else self._trimmed(seen)
        if owner is None or value is None:
            # The object does not belong to a job, or no longer does: its labels or owner can change.
            self._gone.add(ref.uid, ref.version)
            self._drop(key)
            return
        same = known is not None and known.ref.uid == ref.uid and known.value == value
        self._put(_Entry(ref, owner, value), news=not same)

    def forget(self, key: Key, uid: str, version: float = math.inf) -> None:
        """Forgets an object that is gone. If another object has the same name by now, that object stays.

        `version` is the resource version of the deletion. It must be given if the object may come back, because a
        watch also reports an object as deleted if its selector no longer matches the object.
        """
        self._gone.add(uid, version)
        known = self._entries.get(key)
        if known is not None and known.ref.uid == uid and known.ref.version <= version:
            self._drop(key)

    def keys(self, namespace: str | None) -> list[Key]:
        """Returns the keys of the known objects in a namespace or, with None, in all."""
        return [key for key in self._entries if namespace in {None, key[0]}]

    def drop_namespace(self, namespace: str) -> None:
        """Drops all objects of a namespace. They are not recorded as gone, so the next list adds them again."""
        for key in self.keys(namespace):
            self._drop(key)

    async def update_all(
        self, objects: Iterable[O | Unreadable], version: int, covers: Callable[[_Entry[T]], bool]
    ) -> None:
        """Stores a whole list, whose resource version is `version`.

        An object that the list covers but does not contain is gone, unless it is newer than the list. (Other tasks
        run in between, and may store newer objects.)
        """
        listed: set[Key] = set()
        for number, seen in enumerate(objects, start=1):
            if not isinstance(seen, Unreadable):
                self.update(seen)
            listed.add((seen.metadata.namespace, seen.metadata.name))
            if number % OBJECTS_PER_TURN == 0:
                await asyncio.sleep(0)
        for key, entry in list(self._entries.items()):
            if key not in listed and entry.ref.version <= version and covers(entry):
                self.forget(key, entry.ref.uid, version)

    def _put(self, entry: _Entry[T], *, news: bool) -> None:
        self._entries[entry.ref.namespace, entry.ref.name] = entry
        if news:
            self._mark(entry.owner[:2])

    def _drop(self, key: Key) -> _Entry[T] | None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._mark(entry.owner[:2])
        return entry


class Children(Cache[O, T]):
    """The objects of one kind that belong to jobs. An object whose ownership is not proven is not stored."""

    def __init__(
        self, trimmed: Callable[[O], T | None], named: Named, mark: Mark, serves: Serves = lambda _: True
    ) -> None:
        """`named` checks whether an object of this kind can belong to a job, by its name and labels."""
        super().__init__(trimmed, mark, serves)
        self._named = named
        self._owned: defaultdict[JobRef, dict[Key, _Entry[T]]] = defaultdict(dict)

    def owner_of(self, seen: O) -> JobRef | None:
        """Returns the job that an object belongs to; None if its ownership is not proven."""
        return owner_of(seen, self._named)

    def uid_of(self, key: Key, job: JobRef) -> str | None:
        """Returns the uid of the object with this namespace and name, if it belongs to the job."""
        entry = self._entries.get(key)
        return entry.ref.uid if entry and entry.owner == job else None

    def owned_by(self, job: JobRef) -> tuple[T, ...]:
        """Returns all objects that belong to a job."""
        return tuple(map(_value, self._owned.get(job, {}).values()))

    def _put(self, entry: _Entry[T], *, news: bool) -> None:
        key = (entry.ref.namespace, entry.ref.name)
        known = self._entries.get(key)
        if known is not None and known.owner != entry.owner:
            self._drop(key)
        self._owned[entry.owner][key] = entry
        super()._put(entry, news=news)

    def _drop(self, key: Key) -> _Entry[T] | None:
        entry = super()._drop(key)
        if entry is not None:
            del self._owned[entry.owner][key]
            if not self._owned[entry.owner]:
                del self._owned[entry.owner]
        return entry


class Store:
    """All jobs that this operator runs, and the objects that belong to them."""

    def __init__(self, mark: Mark, serves: Serves = lambda _: True) -> None:
        """`serves` returns whether the objects of a namespace are stored."""
        self.jobs: Cache[JobObject, StoredJob] = Cache(StoredJob, mark, serves)
        self.pods: Children[PodObject, Pod] = Children(pod_of, ownership.pod, mark, serves)
        self.owned: Mapping[OwnedKind, Children[Any, Any]] = {
            kind: Children(reading(kind).kept, kind.named, mark, serves) for kind in OWNED if kind.named
        }
        """The objects other than pods that belong to jobs, by kind."""
        self._parsed = _ParsedJobs()

    def job(self, stored: StoredJob) -> DDPJob:
        """Returns a job, parsed for the engine.

        Raises:
            pydantic.ValidationError: this version of the operator cannot parse the job.
        """
        return self._parsed.job(stored)

    def drop_parsed(self, key: Key) -> None:
        """Drops the parsed form of a job that needs nothing more."""
        self._parsed.forget(key)

    def drop_namespace(self, namespace: str) -> None:
        """Drops all objects of a namespace from the store. In the cluster they stay as they are."""
        caches: list[Cache[Any, Any]] = [self.jobs, self.pods, *self.owned.values()]
        for cache in caches:
            cache.drop_namespace(namespace)


def in_namespace(namespace: str | None) -> Callable[[_Entry[T]], bool]:
    """Returns the argument `covers` of `update_all` for a list of a namespace or, with None, of all."""
    return lambda entry: namespace is None or entry.ref.namespace == namespace


def of_owner(job: JobRef) -> Callable[[_Entry[T]], bool]:
    """Returns the argument `covers` of `update_all` for a list of one job's objects."""
    return lambda entry: entry.owner == job


def _ref_of_job(seen: Object) -> JobRef:
    metadata = seen.metadata
    return JobRef(metadata.namespace, metadata.name, metadata.uid)
