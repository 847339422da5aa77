"""How objects that belong to jobs are read: the type that each kind is decoded into, and what the store keeps."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ddpjob_operator.engine import KUEUE_WORKLOAD, OWNED, POD_GROUP, SERVICE, VOLCANO_GROUP, OwnedKind

from .conversion import kueue_workload_of, pod_group_of, volcano_group_of
from .kube.api_client import Resource
from .kube.objects import KueueWorkloadObject, Object, PodGroupObject


def _name_of(seen: Object) -> str:
    return seen.metadata.name


def _name_unless_deleting(seen: Object) -> str | None:
    """Returns the name; None if the object is being deleted, which a finalizer can delay but not prevent."""
    return None if seen.metadata.deletion_timestamp else seen.metadata.name


@dataclass(frozen=True)
class _Reading:
    struct: type[Object] = Object
    kept: Callable[[Any], Any] = _name_unless_deleting


READING: Mapping[OwnedKind, _Reading] = {
    SERVICE: _Reading(kept=_name_of),
    POD_GROUP: _Reading(PodGroupObject, pod_group_of),
    VOLCANO_GROUP: _Reading(PodGroupObject, volcano_group_of),
    KUEUE_WORKLOAD: _Reading(KueueWorkloadObject, kueue_workload_of),
}
"""The kinds whose objects the store keeps in more detail than a name, or keeps even while they are being deleted."""


def reading(kind: OwnedKind) -> _Reading:
    """Returns the type that a kind's objects are decoded into, and what the store keeps of them."""
    return READING.get(kind, _Reading())


RESOURCES: Mapping[OwnedKind, Resource[Any]] = {
    kind: Resource(kind.path, kind.plural, reading(kind).struct) for kind in OWNED
}
"""The API resource of each kind."""
