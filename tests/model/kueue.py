"""A queue of Kueue's as a job meets it: its place there, with the words that Kueue has for what becomes of it."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from typing import Any

from ddpjob_operator.cluster.conversion import kueue_workload_of
from ddpjob_operator.cluster.kube.objects import KueueWorkloadObject, read
from ddpjob_operator.cluster.kueue import patch_for
from ddpjob_operator.engine import (
    KUEUE_WORKLOAD,
    Flavor,
    KueueWorkload,
    Manifest,
    OwnedKind,
    Patch,
    Queue,
    Resize,
    Tell,
)

FLAVOR = "h100"
NODE_SELECTOR = {"gpu": FLAVOR}
"""What nodes of that flavor have."""


@dataclass(frozen=True)
class Place:
    """A Workload as the API server has it. It is never changed: another one takes its place."""

    document: Manifest
    active: bool = True
    """Whether its user lets Kueue admit it."""

    @cached_property
    def seen(self) -> KueueWorkload:
        """As an operator sees it."""
        return kueue_workload_of(read(self.document, KueueWorkloadObject))

    @property
    def name(self) -> str:
        """Its name."""
        return str(self.document["metadata"]["name"])

    @property
    def size(self) -> tuple[int, int | None]:
        """How many nodes it asks for, and how few will do."""
        pods = self.document["spec"]["podSets"][0]
        return pods["count"], pods.get("minCount")

    @property
    def resources(self) -> Manifest | None:
        """What each of them is to have."""
        (trainer,) = self.document["spec"]["podSets"][0]["template"]["spec"]["containers"]
        return dict(trainer).get("resources")

    @property
    def admitted(self) -> int:
        """How many nodes it may use now."""
        return self.seen.admission.nodes if self.seen.admission and not self._goes else 0

    @property
    def _goes(self) -> bool:
        return self.seen.evicted or self.seen.deleting

    def says(self, *conditions: tuple[str, bool, str, str], **status: Any) -> "Place":
        """With these conditions, and parts of its status."""
        there = self.document.get("status", {})
        known = {one["type"]: one for one in there.get("conditions", ())}
        for kind, value, reason, message in conditions:
            said = {"status": "True" if value else "False", "reason": reason, "message": message}
            known[kind] = {"type": kind, **said, "lastTransitionTime": "2026-01-01T00:00:00Z"}
        return self._with(status={**there, **status, "conditions": [*known.values()]})

    def deleting(self) -> "Place":
        """On its way out, as long as somebody's finalizer keeps it."""
        metadata = {**self.document["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}
        return self._with(metadata=metadata)

    def patched(self, wanted: Resize | Tell, now: datetime) -> "Place":
        """As the operator changes it."""
        document = self.document
        for change in patch_for(document, wanted, now)[1]:
            if change["path"] == "/status":
                document = {**document, "status": change["value"]}
                continue
            pods = dict(document["spec"]["podSets"][0])
            field = change["path"].rpartition("/")[2]
            pods = {key: value for key, value in pods.items() if key != field}
            more = {field: change["value"]} if change["op"] == "add" else {}
            document = {**document, "spec": {**document["spec"], "podSets": [pods | more]}}
        return replace(self, document=document)

    def _with(self, **parts: Any) -> "Place":
        return replace(self, document={**self.document, **parts})


@dataclass(frozen=True)
class Kueue:
    """The queue that is to admit the job, and the job's places in queues."""

    queue: Queue | None = None
    """By the job's labels."""
    served: bool = False
    """Whether the cluster has Kueue, and lets the operator use it."""
    places: tuple[Place, ...] = ()
    refuses: bool = False
    """Whether it takes no changes."""
    knows_flavors: bool = True
    """Whether anybody can tell what its flavors are."""

    @property
    def flavors(self) -> dict[str, Flavor]:
        """What they are."""
        return {FLAVOR: Flavor(NODE_SELECTOR) if self.knows_flavors else Flavor(problem="nobody may read it")}

    @property
    def unreserved(self) -> list[Place]:
        """Those that Kueue may keep quota for."""
        can = (one for one in self.places if one.active and not one.seen.reserved)
        return [one for one in can if not (one.seen.finished or one.seen.deleting)]

    @property
    def reserved(self) -> list[Place]:
        """Those that it keeps quota for, and does not want it back."""
        keeps = (one for one in self.places if one.seen.reserved and not one.seen.evicted)
        return [one for one in keeps if not (one.seen.finished or one.seen.deleting)]

    @property
    def seen(self) -> dict[OwnedKind, tuple[Any, ...]]:
        """What an operator sees of the job's places."""
        return {KUEUE_WORKLOAD: tuple(one.seen for one in self.places)} if self.served else {}

    def quota(self) -> int:
        """How many nodes the job may use where its queue has to admit it."""
        wanted = self.queue.name if self.queue else None
        return sum(one.admitted for one in self.places if one.seen.queue == wanted)

    def key(self) -> Any:
        """What tells it from others."""
        places = frozenset((repr(replace(one.seen, waiting=None)), one.active) for one in self.places)
        return self.queue, self.served, places, self.refuses

    # What Kueue does.

    def waits(self, reason: str) -> "Kueue":
        """It says why it does not admit the job."""
        said = ("QuotaReserved", False, reason, "insufficient unused quota")
        return self._each(self.unreserved, lambda one: one.says(said))

    def reserves(self, nodes: int | None = None) -> "Kueue":
        """It keeps quota for all nodes, or for as many of them as will do; others may have to agree."""

        def reserve(one: Place) -> Place:
            most, least = one.size
            count = most if nodes is None or least is None else max(least, min(most, nodes))
            given = {"name": "nodes", "count": count, "flavors": {"nvidia.com/gpu": FLAVOR}}
            said = (
                ("QuotaReserved", True, "QuotaReserved", ""),
                ("Evicted", False, "QuotaReserved", ""),
                ("Admitted", False, "UnsatisfiedChecks", ""),
            )
            return one.says(*said, admission={"clusterQueue": "gpus", "podSetAssignments": [given]})

        return self._each(self.unreserved, reserve)

    def admits(self, nodes: int | None = None) -> "Kueue":
        """All agree."""
        kept = self.reserves(nodes)
        return kept._each(kept.reserved, lambda one: one.says(("Admitted", True, "Admitted", "")))

    def evicts(self, reason: str) -> "Kueue":
        """It wants its quota back."""
        return self._each(self.reserved, lambda one: one.says(("Evicted", True, reason, "a more important one")))

    def deactivates(self) -> "Kueue":
        """Its user, or Kueue after too many evictions, has it admitted no more."""
        said = ("Evicted", True, "Deactivated", "The workload is deactivated")
        left = [one for one in self.places if one.active and not one.seen.finished]
        return self._each(left, lambda one: replace(one.says(said), active=False))

    def activates(self) -> "Kueue":
        """And lets it be admitted again."""
        return self._each(self.places, lambda one: replace(one, active=True))

    def deletes(self, *, at_once: bool) -> "Kueue":
        """Somebody does, by hand."""
        if at_once:
            return replace(self, places=())
        return self._each(self.places, Place.deleting)

    def let_go(self) -> "Kueue":
        """Those that are being deleted are gone."""
        return replace(self, places=tuple(one for one in self.places if not one.seen.deleting))

    # What the operator does.

    def enters(self, manifest: Manifest) -> "Kueue":
        """A place is made, unless it is there."""
        name = manifest["metadata"]["name"]
        if any(one.name == name for one in self.places):
            return self
        return replace(self, places=(*self.places, Place(manifest)))

    def place(self, name: str) -> Place | None:
        """The place of this name."""
        return next((one for one in self.places if one.name == name), None)

    def changes(self, action: Patch, now: datetime) -> "Kueue":
        """The operator changes one, which is there."""
        return self._each(
            [one for one in self.places if one.name == action.name], lambda one: one.patched(action.change, now)
        )

    def leaves(self, name: str) -> "Kueue":
        """The operator deletes one."""
        return replace(self, places=tuple(one for one in self.places if one.name != name))

    def _each(self, some: Iterable[Place], change: Any) -> "Kueue":
        which = {one.name for one in some}
        return replace(self, places=tuple(change(one) if one.name in which else one for one in self.places))
