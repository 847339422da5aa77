"""The pure engine: decisions about a job, from a snapshot and nothing else. Imports only the API."""

from .build import CHECKPOINT_VOLUME
from .decide import decide, nodes_in_question, vanished
from .decision import (
    Action,
    CreateNetworkPolicy,
    CreatePod,
    CreateService,
    Decision,
    DeleteJob,
    DeleteNetworkPolicy,
    DeletePod,
    Event,
    StopPod,
)
from .naming import pod_name
from .settings import Settings
from .snapshot import Disruption, Exit, Manifest, Pod, Refusal, Service, Snapshot, Waiting
from .waiting import WAIT_CONTAINER, WAITING_FOR_MASTER

__all__ = [
    "CHECKPOINT_VOLUME",
    "WAITING_FOR_MASTER",
    "WAIT_CONTAINER",
    "Action",
    "CreateNetworkPolicy",
    "CreatePod",
    "CreateService",
    "Decision",
    "DeleteJob",
    "DeleteNetworkPolicy",
    "DeletePod",
    "Disruption",
    "Event",
    "Exit",
    "Manifest",
    "Pod",
    "Refusal",
    "Service",
    "Settings",
    "Snapshot",
    "StopPod",
    "Waiting",
    "decide",
    "nodes_in_question",
    "pod_name",
    "vanished",
]
