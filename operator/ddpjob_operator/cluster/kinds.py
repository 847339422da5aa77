"""How the operator reads the objects that belong to jobs: the type of each kind, and what the store keeps of it."""

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
    """The name; None if the object is being deleted: a finalizer may delay its end, but cannot prevent it."""
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
"""The kinds of which more than the name is kept, or whose name is kept even while the object is being deleted."""


def reading(kind: OwnedKind) -> _Reading:
    """The type of a kind's objects, and what is kept of them."""
    return READING.get(kind, _Reading())


RESOURCES: Mapping[OwnedKind, Resource[Any]] = {
    kind: Resource(kind.path, kind.plural, reading(kind).struct) for kind in OWNED
}
"""Where each kind is served."""
