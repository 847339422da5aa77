"""The field `spec.scheduling`: how the cluster's scheduler places a gang. Its names are those of Kubernetes' Job."""

from typing import Annotated

from pydantic import Field

from .contract import MAX_NODES
from .model import Model


class NoDetails(Model):
    """A choice that has no details: `{}`."""


class GangPolicy(Model):
    """All pods are scheduled together, or none is."""

    min_count: Annotated[int, Field(ge=1, le=MAX_NODES)] | None = None
    """The smallest number of pods that are placed together. The others follow when there is room. Without a value,
    all pods or, for an elastic job, `elastic.minNodes`."""


class SchedulingPolicy(Model):
    """How the pods are placed. Exactly one of these fields is set."""

    basic: NoDetails | None = None
    """Places each pod separately, as if there were no group."""
    gang: GangPolicy | None = None
    """Places the pods together, or not at all."""


class DisruptionMode(Model):
    """Which pods the scheduler preempts to make room for others. Exactly one of these fields is set."""

    single: NoDetails | None = None
    """Preempts as few pods as are needed."""
    all: NoDetails | None = None
    """Preempts all pods or none."""


LABEL_KEY = "^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$"
NodeLabel = Annotated[str, Field(pattern=LABEL_KEY, max_length=317)]
"""The key of a label."""


class Topology(Model):
    """Which Kubernetes nodes are close to each other, by the value of a label. Exactly one of these fields is set."""

    required: NodeLabel | None = None
    """The label's key. All pods must be on nodes with the same value. A pod waits if these nodes have no room."""
    preferred: NodeLabel | None = None
    """The label's key. If nodes with the same value have no room for all pods, other nodes are used too."""

    @property
    def key(self) -> str | None:
        """The label's key, from whichever field is set."""
        return self.required or self.preferred


class Scheduling(Model):
    """How the cluster's scheduler places the pods of an attempt."""

    scheduling_policy: SchedulingPolicy | None = None
    """Whether the pods are placed together. Without it, they are placed as a gang."""
    disruption_mode: DisruptionMode | None = None
    """Which pods are preempted together. Without a value, the scheduler preempts as few pods as are needed."""
    topology: Topology | None = None
    """Places the pods close to each other, such as in one rack. It needs no PodGroups."""
