"""What exists, as far as we have seen or created it: jobs and what belongs to them, typed and trimmed.

It is filled by watches, by the answers to our own writes, and by lists. Versions decide which of two views of an
object is newer, so that a late event undoes nothing. A watch may miss that something was deleted; a list shows it.
Whatever changes, its job gets a look.
"""

import asyncio
import logging
import math
import time
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ddpjob_operator.api import DDPJob, ownership
from ddpjob_operator.api.ownership import JobRef, Named
from ddpjob_operator.engine import OWNED, OwnedKind

from .conversion import Ref, owner_of, pod_of, ref_of
from .kinds import reading
from .kube.objects import JobMeta, JobObject, Object, PodObject, Unreadable
from .serve.metrics import UNREADABLE

if TYPE_CHECKING:
    from ddpjob_operator.engine import Pod

Key = tuple[str, str]
"""An object's namespace and name."""

Mark = Callable[[Key], None]
"""Queues a look at a job."""

Serves = Callable[[str], bool]
"""Whether the jobs of a namespace are looked after."""

LATE_SECONDS = 300.0
"""Longer than any view of an object can be under way: for at least this long, we remember that an object is gone."""

AT_A_STRETCH = 250
"""How many objects of a list are taken in before others get a turn: some milliseconds."""
UNDERSTOOD_BYTES = 8 << 20
"""Jobs are kept as the engine reads them, up to this much JSON in total, which takes several times as much memory,"""
UNDERSTOOD_JOBS = 1_000
"""and up to this many: a small one is read in 0.03 ms, and each has some twenty objects that the garbage collector
looks at. With those of 10,000 jobs it stopped everything for a sixth of a second."""

logger = logging.getLogger(__name__)

O = TypeVar("O", bound=Object)  # noqa: E741  An object as it comes,
T = TypeVar("T")  # and what is kept of it.


@dataclass(frozen=True)
class StoredJob:
    """A job as it was last seen, with its spec and status packed."""

    seen: JobObject

    @property
    def metadata(self) -> JobMeta:
        """Its metadata."""
        return self.seen.metadata

    @property
    def uid(self) -> str:
        """Its uid."""
        return self.metadata.uid

    @property
    def ref(self) -> JobRef:
        """Which job it is."""
        return _itself(self.seen)

    @property
    def deleting(self) -> bool:
        """Whether it is being deleted: nothing more is created for it, and the garbage collector does the rest."""
        return self.metadata.deletion_timestamp is not None

    @cached_property
    def state(self) -> str:
        """What it is doing, in one word; kept, since each scrape of the metrics asks."""
        return str((self.seen.status.read() or {}).get("state", "Pending"))

    @property
    def unseen(self) -> bool:
        """Whether no operator has ever looked at it."""
        return bool((self.seen.status.read() or {}).get("observedGeneration", 0) < 1)

    @property
    def size(self) -> int:
        """Bytes of its spec and status as JSON."""
        return self.seen.spec.size + self.seen.status.size

    def understood(self) -> DDPJob:
        """The job itself.

        Raises:
            pydantic.ValidationError: it is none that this version understands.
        """
        metadata = self.metadata
        own = {"name": metadata.name, "namespace": metadata.namespace, "uid": metadata.uid}
        spec, status = self.seen.spec, self.seen.status
        return DDPJob.from_dict(
            {
                "metadata": {**own, "generation": metadata.generation},
                "spec": spec.read(),
                "status": status.read(),
            },
            # To look for one takes longer than all else: a template may have a hundred thousand leaves.
            nulls=spec.has_nulls or status.has_nulls,
        )


class _Understood:
    """The jobs that were looked at last, as the engine reads them.

    A resting job is not looked at: it is the first to go, and only the packed form of a suspended or finished job
    stays. Those kept are no more than UNDERSTOOD_JOBS, and no larger than UNDERSTOOD_BYTES unless there is only one.
    """

    def __init__(self) -> None:
        self._jobs: OrderedDict[Key, tuple[StoredJob, DDPJob]] = OrderedDict()
        self._size = 0

    def job(self, stored: StoredJob) -> DDPJob:
        """The job at this version; other versions are dropped."""
        key = (stored.metadata.namespace, stored.metadata.name)
        known = self._jobs.get(key)
        if known is not None and known[0] is stored:
            self._jobs.move_to_end(key)
            return known[1]
        self.forget(key)
        job = stored.understood()
        self._jobs[key] = stored, job
        self._size += stored.size
        while len(self._jobs) > 1 and (self._size > UNDERSTOOD_BYTES or len(self._jobs) > UNDERSTOOD_JOBS):
            self.forget(next(iter(self._jobs)))
        return job

    def forget(self, key: Key) -> None:
        """Drops one."""
        known = self._jobs.pop(key, None)
        if known is not None:
            self._size -= known[0].size


@dataclass(frozen=True, slots=True)
class _Entry(Generic[T]):
    ref: Ref
    owner: JobRef
    """The job to which it belongs, or which it is."""
    value: T


_value = attrgetter("value")


class _Gone:
    """Which objects are gone, by uid, and the version up to which no view of one counts any more.

    Two generations: when the younger is LATE_SECONDS old it becomes the elder, and the former elder is forgotten.
    """

    def __init__(self) -> None:
        self._younger: dict[str, float] = {}
        self._elder: dict[str, float] = {}
        self._since = time.monotonic()

    def version(self, uid: str) -> float:
        """Up to which version the object is gone; 0 if nothing is known about its end."""
        return max(self._younger.get(uid, 0), self._elder.get(uid, 0))

    def add(self, uid: str, version: float) -> None:
        """Remembers that it was gone at this version."""
        now = time.monotonic()
        if now - self._since > LATE_SECONDS:
            self._younger, self._elder, self._since = {}, self._younger, now
        self._younger[uid] = max(version, self.version(uid))


class Cache(Generic[O, T]):
    """The newest known view of each object of one kind."""

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
        """The object of that namespace and name."""
        entry = self._entries.get(key)
        return entry.value if entry else None

    def uid(self, key: Key) -> str | None:
        """The uid of the object of that namespace and name."""
        entry = self._entries.get(key)
        return entry.ref.uid if entry else None

    def owner_of(self, seen: O) -> JobRef | None:
        """Whose an object is; None if it is nobody's."""
        return _itself(seen)

    def all(self) -> list[tuple[Key, T]]:
        """All objects with their names."""
        return [(key, entry.value) for key, entry in self._entries.items()]

    def saw(self, seen: O) -> None:
        """Takes an object in unless something newer is known.

        The deletion is newer, too: an answer or a list may arrive after the watch has reported it. One that cannot be
        understood is set aside: what was known of it still counts.
        """
        try:
            self._take(seen)
        except Exception:  # Whatever it was: one object ends nothing.
            UNREADABLE.labels(type(seen).__name__).inc()
            metadata = seen.metadata
            logger.exception("this is a bug: %s/%s is set aside", metadata.namespace, metadata.name)

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
        if owner is None or value is None:  # It is not a job's, or no longer: its labels or its owner were changed.
            self._gone.add(ref.uid, ref.version)
            self._drop(key)
            return
        same = known is not None and known.ref.uid == ref.uid and known.value == value
        self._put(_Entry(ref, owner, value), news=not same)

    def forget(self, key: Key, uid: str, version: float = math.inf) -> None:
        """Forgets an object that is gone, unless another one has taken its name.

        `version`: when it went, if it may come back: for a watch, what its selector no longer selects is gone, too.
        """
        self._gone.add(uid, version)
        known = self._entries.get(key)
        if known is not None and known.ref.uid == uid and known.ref.version <= version:
            self._drop(key)

    def keys(self, namespace: str | None) -> list[Key]:
        """The keys of what exists in a namespace, or in all."""
        return [key for key in self._entries if namespace in {None, key[0]}]

    def leave(self, namespace: str) -> None:
        """Drops everything in a namespace. It is not gone: the next list brings it back."""
        for key in self.keys(namespace):
            self._drop(key)

    async def listed(
        self, objects: Iterable[O | Unreadable], version: int, covers: Callable[[_Entry[T]], bool]
    ) -> None:
        """Takes in a whole list: what the list covers, but does not contain and is older than it, is gone.

        What happens meanwhile, since others get a turn, is newer than the list.
        """
        there: set[Key] = set()
        for number, seen in enumerate(objects, start=1):
            if not isinstance(seen, Unreadable):
                self.saw(seen)
            there.add((seen.metadata.namespace, seen.metadata.name))
            if number % AT_A_STRETCH == 0:
                await asyncio.sleep(0)
        for key, entry in list(self._entries.items()):
            if key not in there and entry.ref.version <= version and covers(entry):
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
    """What belongs to jobs: nothing else is taken in, whatever it says, wherever it comes from."""

    def __init__(
        self, trimmed: Callable[[O], T | None], named: Named, mark: Mark, serves: Serves = lambda _: True
    ) -> None:
        """`named`: what a job's object of this kind is called."""
        super().__init__(trimmed, mark, serves)
        self._named = named
        self._owned: defaultdict[JobRef, dict[Key, _Entry[T]]] = defaultdict(dict)

    def owner_of(self, seen: O) -> JobRef | None:
        """The job to which an object belongs."""
        return owner_of(seen, self._named)

    def uid_of(self, key: Key, job: JobRef) -> str | None:
        """The uid of the object of that namespace and name, if it belongs to the job."""
        entry = self._entries.get(key)
        return entry.ref.uid if entry and entry.owner == job else None

    def owned_by(self, job: JobRef) -> tuple[T, ...]:
        """All objects that belong to a job."""
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
    """All jobs that this operator looks after, and what belongs to them."""

    def __init__(self, mark: Mark, serves: Serves = lambda _: True) -> None:
        """`serves`: whether anything in a namespace is taken in."""
        self.jobs: Cache[JobObject, StoredJob] = Cache(StoredJob, mark, serves)
        self.pods: Children[PodObject, Pod] = Children(pod_of, ownership.pod, mark, serves)
        self.owned: Mapping[OwnedKind, Children[Any, Any]] = {
            kind: Children(reading(kind).kept, kind.named, mark, serves) for kind in OWNED if kind.named
        }
        """What stands beside their pods, by its kind."""
        self._understood = _Understood()

    def job(self, stored: StoredJob) -> DDPJob:
        """A job as the engine reads it.

        Raises:
            pydantic.ValidationError: it is none that this version understands.
        """
        return self._understood.job(stored)

    def left(self, key: Key) -> None:
        """There is nothing more to do for this job."""
        self._understood.forget(key)

    def leave(self, namespace: str) -> None:
        """Drops a namespace; its jobs are left as they are."""
        caches: list[Cache[Any, Any]] = [self.jobs, self.pods, *self.owned.values()]
        for cache in caches:
            cache.leave(namespace)

    def states(self) -> Counter[str]:
        """How many jobs there are in each state."""
        return Counter(stored.state for _, stored in self.jobs.all())


def in_namespace(namespace: str | None) -> Callable[[_Entry[T]], bool]:
    """For `listed`: a list of this namespace, or of all."""
    return lambda entry: namespace is None or entry.ref.namespace == namespace


def of_owner(job: JobRef) -> Callable[[_Entry[T]], bool]:
    """For `listed`: a list of what belongs to one job."""
    return lambda entry: entry.owner == job


def _itself(seen: Object) -> JobRef:
    metadata = seen.metadata
    return JobRef(metadata.namespace, metadata.name, metadata.uid)
