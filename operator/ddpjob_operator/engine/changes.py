"""Changes to a status: fields with new values, known to the type checker."""

from datetime import datetime
from typing import TypedDict, Unpack

from ddpjob_operator.api import (
    AvoidedNode,
    Backend,
    Budget,
    CheckpointSeen,
    Condition,
    DDPJobStatus,
    Incarnations,
    Incident,
    NetworkPolicy,
    PodSecurity,
    Progress,
    State,
    Straggler,
)


class StatusChanges(TypedDict, total=False):
    """The fields of a `DDPJobStatus` that policies may set, and so remember until the next look."""

    completed_indexes: str
    last_completed_time: datetime | None
    attempt: int
    incarnations: Incarnations
    selector: str
    nodes: int | None
    procs_per_node: int | None
    backend: Backend | str | None
    master_port: int | None
    status_port: int | None
    control_port: int | None
    pod_security: PodSecurity | str | None
    network_policy: NetworkPolicy | str | None
    trainer_image: str | None
    service: str | None
    pod_group: str | None
    supervised: bool
    progress: Progress | None
    checkpoint: CheckpointSeen | None
    stragglers: tuple[Straggler, ...]
    restarts: int
    disruptions: int
    budget: Budget
    start_time: datetime | None
    suspend_time: datetime | None
    backoff_until: datetime | None
    completion_time: datetime | None
    first_run_time: datetime | None
    last_failure: Incident | None
    history: tuple[Incident, ...]
    avoided_nodes: tuple[AvoidedNode, ...]


class EveryChange(StatusChanges, total=False):
    """And the fields that follow from the rest, or are there only for people: no decision rests on them."""

    conditions: tuple[Condition, ...]
    observed_generation: int
    state: State | str
    reason: str
    message: str
    ready_nodes: int
    ready: str


def changed(status: DDPJobStatus, **changes: Unpack[EveryChange]) -> DDPJobStatus:
    """The status with these fields changed."""
    return status.model_copy(update=changes)
