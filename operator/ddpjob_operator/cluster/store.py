"""What is there, as far as we have seen or made it: jobs, pods and Services, typed and trimmed.

It is filled by watches, by the answers to our own writes, and by lists. Versions decide which of two views of an
object is newer, so that a late event undoes nothing. A watch may miss that something was deleted; a list tells.
"""

import math
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Generic, TypeVar

from ddpjob_operator.api import DDPJob
from ddpjob_operator.engine import Manifest, Pod, Service

from .observing import Ref, job_name_of, owner_of, pod_of, ref_of

Key = tuple[str, str]
"""An object's namespace and name."""

REMEMBERED_GONE = 10_000
"""How many objects that are gone are remembered: more than go while a list is under way."""

T = TypeVar("T")


@dataclass(frozen=True)
class StoredJob:
    """A job as it was last seen."""

    document: Manifest

    @property
    def uid(self) -> str:
        """Its uid."""
        uid: str = self.document["metadata"]["uid"]
        return uid

    @property
    def version(self) -> str:
        """Its resource version."""
        version: str = self.document["metadata"]["resourceVersion"]
        return version

    @property
    def deleting(self) -> bool:
        """Whether it is being deleted: nothing is made for it any more, and the garbage collector does the rest."""
        return "deletionTimestamp" in self.document["metadata"]

    @cached_property
    def job(self) -> DDPJob:
        """The job itself.

        Raises:
            pydantic.ValidationError: it is none that this version understands.
        """
        return DDPJob.from_dict(self.document)


@dataclass(frozen=True, slots=True)
class _Entry(Generic[T]):
    ref: Ref
    owner: str | None
    value: T


class Cache(Generic[T]):
    """The newest known view of each object of one kind."""

    def __init__(self, trimmed: Callable[[Manifest], T | None]) -> None:
        self._trimmed = trimmed
        self._entries: dict[Key, _Entry[T]] = {}
        self._owned: defaultdict[str, dict[Key, _Entry[T]]] = defaultdict(dict)
        self._gone: OrderedDict[str, float] = OrderedDict()

    def get(self, key: Key) -> T | None:
        """The object of that namespace and name."""
        entry = self._entries.get(key)
        return entry.value if entry else None

    def owner(self, key: Key) -> str | None:
        """The uid of the object that controls the one of that namespace and name."""
        entry = self._entries.get(key)
        return entry.owner if entry else None

    def owned_by(self, uid: str) -> tuple[T, ...]:
        """All objects that the one with this uid controls."""
        return tuple(entry.value for entry in self._owned.get(uid, {}).values())

    def all(self) -> list[tuple[Key, T]]:
        """All objects with their names."""
        return [(key, entry.value) for key, entry in self._entries.items()]

    def saw(self, manifest: Manifest) -> bool:
        """Takes an object in unless something newer is known; returns whether that changed what is known.

        Newer is also that it is gone: an answer or a list may come in after the watch has told of the deletion.
        """
        ref = ref_of(manifest)
        key = (ref.namespace, ref.name)
        known = self._entries.get(key)
        if ref.version <= self._gone.get(ref.uid, 0) or (known is not None and known.ref.version >= ref.version):
            return False
        value = self._trimmed(manifest)
        if value is None:  # What it was, it is no more: somebody has changed its labels or its owner.
            self._drop(key)
            return known is not None
        self._put(_Entry(ref, owner_of(manifest), value))
        return known is None or known.ref.uid != ref.uid or known.value != value

    def forget(self, key: Key, uid: str, version: float = math.inf) -> None:
        """Forgets an object that is gone, unless another one has taken its name.

        `version`: when it went, where it may come back: for a watch, gone is also what its selector selects no more.
        """
        self._gone[uid] = version
        self._gone.move_to_end(uid)
        if len(self._gone) > REMEMBERED_GONE:
            self._gone.popitem(last=False)
        known = self._entries.get(key)
        if known is not None and known.ref.uid == uid:
            self._drop(key)

    def listed(self, manifests: list[Manifest], version: int, covers: Callable[[_Entry[T]], bool]) -> None:
        """Takes in a whole list: what it covers, is older than it and not in it is gone."""
        for manifest in manifests:
            self.saw(manifest)
        there = {(ref.namespace, ref.name) for ref in map(ref_of, manifests)}
        for key, entry in list(self._entries.items()):
            if key not in there and entry.ref.version <= version and covers(entry):
                self.forget(key, entry.ref.uid, version)

    def _put(self, entry: _Entry[T]) -> None:
        key = (entry.ref.namespace, entry.ref.name)
        self._drop(key)
        self._entries[key] = entry
        if entry.owner is not None:
            self._owned[entry.owner][key] = entry

    def _drop(self, key: Key) -> None:
        entry = self._entries.pop(key, None)
        if entry is None or entry.owner is None:
            return
        del self._owned[entry.owner][key]
        if not self._owned[entry.owner]:
            del self._owned[entry.owner]


class Store:
    """All jobs that this operator looks after, and what belongs to them."""

    def __init__(self) -> None:
        self.jobs: Cache[StoredJob] = Cache(_job)
        self.pods: Cache[Pod] = Cache(pod_of)
        self.services: Cache[str] = Cache(_uid)
        self.policies: Cache[str] = Cache(_uid)

    def service(self, key: Key, uid: str) -> Service:
        """The Service under a job's name, among those with our label."""
        if self.services.get(key) is None:
            return Service.MISSING
        owner = self.services.owner(key)
        if owner is None:  # Left by a job that was deleted without what belongs to it: nobody will remove it.
            return Service.FOREIGN
        return Service.OURS if owner == uid else Service.FORMER

    def states(self) -> Counter[str]:
        """How many jobs there are in each state."""
        return Counter(stored.document.get("status", {}).get("state", "Pending") for _, stored in self.jobs.all())


def job_of(manifest: Manifest) -> Key | None:
    """The job that a pod or a Service belongs to by its label."""
    name = job_name_of(manifest)
    return (manifest["metadata"]["namespace"], name) if name else None


def in_namespace(namespace: str | None) -> Callable[[_Entry[T]], bool]:
    """For `listed`: a list of this namespace, or of all."""
    return lambda entry: namespace is None or entry.ref.namespace == namespace


def of_owner(uid: str) -> Callable[[_Entry[T]], bool]:
    """For `listed`: a list of what belongs to one job."""
    return lambda entry: entry.owner == uid


def _uid(manifest: Manifest) -> str:
    uid: str = manifest["metadata"]["uid"]
    return uid


def _job(manifest: Manifest) -> StoredJob:
    metadata = {name: value for name, value in manifest["metadata"].items() if name != "managedFields"}
    return StoredJob({**manifest, "metadata": metadata})
