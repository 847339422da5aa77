"""A queue of Kueue as a job meets it: the job's place in it, with the conditions that Kueue sets."""

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
"""The labels of nodes that belong to the flavor."""


@dataclass(frozen=True)
class Place:
    """A Workload as the API server has it. It never changes: it is replaced by another Place."""

    document: Manifest
    active: bool = True
    """Whether its user allows Kueue to admit it."""

    @cached_property
    def seen(self) -> KueueWorkload:
        """The Workload as an operator sees it."""
        return kueue_workload_of(read(self.document, KueueWorkloadObject))

    @property
    def name(self) -> str:
        return str(self.document["metadata"]["name"])

    @property
    def size(self) -> tuple[int, int | None]:
        """How many nodes the Workload requests, and the smallest number that is enough."""
        pods = self.document["spec"]["podSets"][0]
        return pods["count"], pods.get("minCount")

    @property
    def resources(self) -> Manifest | None:
        """The resources that each node's trainer requests."""
        (trainer,) = self.document["spec"]["podSets"][0]["template"]["spec"]["containers"]
        return dict(trainer).get("resources")

    @property
    def admitted(self) -> int:
        """How many nodes the job may use now."""
        return self.seen.admission.nodes if self.seen.admission and not self._goes else 0

    @property
    def _goes(self) -> bool:
        return self.seen.evicted or self.seen.deleting

    def says(self, *conditions: tuple[str, bool, str, str], **status: Any) -> "Place":
        """The same place with these conditions, and with these parts of its status."""
        there = self.document.get("status", {})
        known = {one["type"]: one for one in there.get("conditions", ())}
        for kind, value, reason, message in conditions:
            said = {"status": "True" if value else "False", "reason": reason, "message": message}
            known[kind] = {"type": kind, **said, "lastTransitionTime": "2026-01-01T00:00:00Z"}
        return self._with(status={**there, **status, "conditions": [*known.values()]})

    def deleting(self) -> "Place":
        """The same place after its deletion, while a finalizer keeps it."""
        metadata = {**self.document["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}
        return self._with(metadata=metadata)

    def patched(self, wanted: Resize | Tell, now: datetime) -> "Place":
        """The same place after a change by the operator."""
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
    """The queue that has to admit the job, and the job's places in queues."""

    queue: Queue | None = None
    """The queue that the job's labels name."""
    served: bool = False
    """Whether the cluster has Kueue, and permits the operator to use it."""
    places: tuple[Place, ...] = ()
    refuses: bool = False
    """Whether Kueue refuses changes."""
    knows_flavors: bool = True
    """Whether its flavors can be read."""

    @property
    def flavors(self) -> dict[str, Flavor]:
        """The queue's flavors."""
        return {FLAVOR: Flavor(NODE_SELECTOR) if self.knows_flavors else Flavor(problem="nobody may read it")}

    @property
    def unreserved(self) -> list[Place]:
        """The places for which Kueue may reserve quota."""
        can = (one for one in self.places if one.active and not one.seen.reserved)
        return [one for one in can if not (one.seen.finished or one.seen.deleting)]

    @property
    def reserved(self) -> list[Place]:
        """The places for which Kueue has reserved quota that it does not want back."""
        keeps = (one for one in self.places if one.seen.reserved and not one.seen.evicted)
        return [one for one in keeps if not (one.seen.finished or one.seen.deleting)]

    @property
    def seen(self) -> dict[OwnedKind, tuple[Any, ...]]:
        """The job's places as an operator sees them."""
        return {KUEUE_WORKLOAD: tuple(one.seen for one in self.places)} if self.served else {}

    def quota(self) -> int:
        """How many nodes the job may use, if its queue has to admit it."""
        wanted = self.queue.name if self.queue else None
        return sum(one.admitted for one in self.places if one.seen.queue == wanted)

    def key(self) -> Any:
        """A key that is equal only for equal queues and places."""
        places = frozenset((repr(replace(one.seen, waiting=None)), one.active) for one in self.places)
        return self.queue, self.served, places, self.refuses

    # What Kueue does.

    def waits(self, reason: str) -> "Kueue":
        """Kueue gives a reason why it does not admit the job."""
        said = ("QuotaReserved", False, reason, "insufficient unused quota")
        return self._each(self.unreserved, lambda one: one.says(said))

    def reserves(self, nodes: int | None = None) -> "Kueue":
        """Kueue reserves quota for all nodes, or for a number that is enough. Others may still have to agree."""

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
        """Kueue admits the job, because all have agreed."""
        kept = self.reserves(nodes)
        return kept._each(kept.reserved, lambda one: one.says(("Admitted", True, "Admitted", "")))

    def evicts(self, reason: str) -> "Kueue":
        """Kueue wants its quota back."""
        return self._each(self.reserved, lambda one: one.says(("Evicted", True, reason, "a more important one")))

    def deactivates(self) -> "Kueue":
        """The user, or Kueue after too many evictions, no longer allows the job to be admitted."""
        said = ("Evicted", True, "Deactivated", "The workload is deactivated")
        left = [one for one in self.places if one.active and not one.seen.finished]
        return self._each(left, lambda one: replace(one.says(said), active=False))

    def activates(self) -> "Kueue":
        """The job may be admitted again."""
        return self._each(self.places, lambda one: replace(one, active=True))

    def deletes(self, *, at_once: bool) -> "Kueue":
        """Somebody deletes the job's places by hand."""
        if at_once:
            return replace(self, places=())
        return self._each(self.places, Place.deleting)

    def let_go(self) -> "Kueue":
        """Places that were deleted disappear."""
        return replace(self, places=tuple(one for one in self.places if not one.seen.deleting))

    # What the operator does.

    def enters(self, manifest: Manifest) -> "Kueue":
        """The operator creates a place, unless it exists."""
        name = manifest["metadata"]["name"]
        if any(one.name == name for one in self.places):
            return self
        return replace(self, places=(*self.places, Place(manifest)))

    def place(self, name: str) -> Place | None:
        """The place with this name; None if there is none."""
        return next((one for one in self.places if one.name == name), None)

    def changes(self, action: Patch, now: datetime) -> "Kueue":
        """The operator changes an existing place."""
        return self._each(
            [one for one in self.places if one.name == action.name], lambda one: one.patched(action.change, now)
        )

    def leaves(self, name: str) -> "Kueue":
        """The operator deletes a place."""
        return replace(self, places=tuple(one for one in self.places if one.name != name))

    def _each(self, some: Iterable[Place], change: Any) -> "Kueue":
        which = {one.name for one in some}
        return replace(self, places=tuple(change(one) if one.name in which else one for one in self.places))
