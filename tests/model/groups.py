"""The actual state of a job's PodGroups and Workloads, and how a scheduler that supports them places pods."""

from dataclasses import dataclass, field, replace
from typing import Any

from ddpjob_operator.engine import POD_GROUP, WORKLOAD, OwnedKind, PodGroup, Waiting

from .pods import RealPod


@dataclass
class RealGroup:
    """A PodGroup."""

    name: str
    least: int
    """At least this many of its pods are placed together; otherwise none is placed."""
    placed: bool = False
    """Whether the pods have been placed together. From then on, pods of the group are placed one by one."""
    waiting: Waiting | None = None
    """The scheduler's message while it has no room for the group."""
    deleting: bool = False


@dataclass
class Groups:
    """All PodGroups and Workloads of the job."""

    served: bool = False
    """Whether the cluster has such objects, and its scheduler uses them."""
    there: dict[str, RealGroup] = field(default_factory=dict)
    workloads: frozenset[str] = frozenset()

    def copy(self) -> "Groups":
        """A copy that changes independently from now on."""
        return replace(self, there={name: replace(group) for name, group in self.there.items()})

    @property
    def unplaced(self) -> list[RealGroup]:
        """The groups whose pods the scheduler has not placed yet."""
        return [group for group in self.there.values() if not group.placed]

    def seen(self) -> dict[OwnedKind, tuple[Any, ...]]:
        """The groups as an operator sees them."""
        if not self.served:
            return {}
        groups = (PodGroup(group.name, group.waiting, group.deleting) for group in self.there.values())
        return {POD_GROUP: tuple(groups), WORKLOAD: tuple(self.workloads)}

    def key(self, pods: list[RealPod]) -> Any:
        """A key that is equal only for equal groups."""
        self.let_go(pods)
        groups = {(group.name, group.placed, group.deleting) for group in self.there.values()}
        return frozenset(groups), self.workloads

    def create(self, manifest: dict[str, Any]) -> None:
        """Creates a Workload or a PodGroup, unless it exists."""
        name, spec = manifest["metadata"]["name"], manifest["spec"]
        if manifest["kind"] == "Workload":
            self.workloads |= {name}
        else:
            least = spec["schedulingPolicy"].get("gang", {}).get("minCount", 1)
            self.there.setdefault(name, RealGroup(name, least))

    def delete(self, name: str) -> None:
        """Deletes a PodGroup. Whoever deletes it, it remains until none of its pods can run any more."""
        if name in self.there:
            self.there[name].deleting = True

    def let_go(self, pods: list[RealPod]) -> None:
        """Removes groups that were deleted and have no such pods."""
        held = {pod.group for pod in pods if pod.exit is None}
        self.there = {name: group for name, group in self.there.items() if not group.deleting or name in held}

    def placed_with(self, pod: RealPod, pods: list[RealPod]) -> list[RealPod]:
        """The pods that the scheduler places together with this pod; empty while its group lacks pods."""
        if pod.group is None or not self.served:
            return [pod]
        group = self.there.get(pod.group)
        if group is None or group.placed:
            return [pod] if group else []
        members = [one for one in pods if one.live and one.group == pod.group]
        waiting = [one for one in members if one is not pod and one.waits and one.node is None]
        lacking = group.least - 1 - sum(one.node is not None for one in members)
        if lacking > len(waiting):
            return []
        group.placed, group.waiting = True, None
        return [pod, *waiting[: max(0, lacking)]]
