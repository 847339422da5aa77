"""Typed changes to a status: new values by field name, whichever part of the status the field belongs to."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, TypedDict, Unpack

from pydantic import BaseModel

from ddpjob_operator.api import (
    AvoidedNodeName,
    Backend,
    Bookkeeping,
    Budget,
    CheckpointSeen,
    Condition,
    DDPJobStatus,
    Defaults,
    DisplayStatus,
    Incarnations,
    Incident,
    InheritedMetadata,
    NetworkPolicy,
    NetworkStatus,
    PodSecurity,
    Progress,
    RequestedCheckpoint,
    RunningCode,
    State,
    Steps,
    Straggler,
)


class BookkeepingChanges(TypedDict, total=False):
    """Fields of `status.bookkeeping`."""

    incarnations: Incarnations
    budget: Budget
    supervised: bool
    suspend_time: datetime | None
    last_completed_time: datetime | None
    steps: Steps
    version: str
    contender: str | None


class NetworkChanges(TypedDict, total=False):
    """Fields of `status.network`."""

    master_port: int | None
    status_port: int | None
    control_port: int | None
    policy: NetworkPolicy | str | None
    service: str | None


class StatusChanges(BookkeepingChanges, NetworkChanges, total=False):
    """The fields of a `DDPJobStatus` that policies may set and read again in later rounds."""

    completed_indexes: str
    result: str | None
    result_place: str | None
    attempt: int
    operator: str | None
    class_name: str | None
    selector: str
    nodes: int | None
    procs_per_node: int | None
    backend: Backend | str | None
    pod_security: PodSecurity | str | None
    inherited: InheritedMetadata | None
    trainer_image: str | None
    defaults: Defaults | None
    history_path: str | None
    pod_group: str | None
    progress: Progress | None
    checkpoint: CheckpointSeen | None
    code: RunningCode | None
    requested_checkpoint: RequestedCheckpoint | None
    stragglers: tuple[Straggler, ...]
    restarts: int
    disruptions: int
    start_time: datetime | None
    first_run_time: datetime | None
    backoff_until: datetime | None
    completion_time: datetime | None
    incidents: tuple[Incident, ...]
    avoided_node_names: tuple[AvoidedNodeName, ...]


class EveryChange(StatusChanges, total=False):
    """Adds fields that no decision depends on: they are derived from other fields, or only meant for people."""

    conditions: tuple[Condition, ...]
    observed_generation: int
    state: State | str
    reason: str
    message: str
    ready_nodes: int
    display: DisplayStatus


PARTS: Mapping[str, type[BaseModel]] = {"bookkeeping": Bookkeeping, "network": NetworkStatus}
"""The parts of a status, by name. `changed` takes the fields of these parts without the name of the part."""
PART_OF: Mapping[str, str] = {name: part for part, model in PARTS.items() for name in model.model_fields}


def changed(status: DDPJobStatus, **changes: Unpack[EveryChange]) -> DDPJobStatus:
    """Returns the status with these fields changed, each in the part of the status that it belongs to."""
    fields: dict[str, Any] = {}
    within: dict[str, dict[str, Any]] = {}
    for name, value in changes.items():
        part = PART_OF.get(name)
        if part is None:
            fields[name] = value
        elif getattr(getattr(status, part), name) is not value:  # Usually nothing changes and no part is copied.
            within.setdefault(part, {})[name] = value
    parts = {part: getattr(status, part).model_copy(update=update) for part, update in within.items()}
    return status.model_copy(update=fields | parts)
