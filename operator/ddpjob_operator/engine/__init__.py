"""The pure engine: decisions about a job, from a snapshot and nothing else. Imports only the API."""

from .build import CHECKPOINT_VOLUME
from .decide import decide, vanished
from .decision import (
    Action,
    CreateNetworkPolicy,
    CreatePod,
    CreateService,
    Decision,
    DeleteNetworkPolicy,
    DeletePod,
    Event,
)
from .naming import pod_name
from .policies import DEADLINE_EXCEEDED
from .settings import Settings
from .snapshot import Exit, Manifest, Pod, Refusal, Service, Snapshot
from .waiting import WAIT_CONTAINER

__all__ = [
    "CHECKPOINT_VOLUME",
    "DEADLINE_EXCEEDED",
    "WAIT_CONTAINER",
    "Action",
    "CreateNetworkPolicy",
    "CreatePod",
    "CreateService",
    "Decision",
    "DeleteNetworkPolicy",
    "DeletePod",
    "Event",
    "Exit",
    "Manifest",
    "Pod",
    "Refusal",
    "Service",
    "Settings",
    "Snapshot",
    "decide",
    "pod_name",
    "vanished",
]
