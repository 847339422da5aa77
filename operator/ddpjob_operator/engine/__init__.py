"""The pure engine: decisions about a job, from a snapshot and nothing else. Imports only the API."""

from .asking import Asked, whom_else_to_ask, whom_to_ask
from .build import CHECKPOINT_VOLUME, SECRET_VOLUME
from .decide import decide, nodes_in_question, vanished
from .decision import (
    Action,
    CreateNetworkPolicy,
    CreatePod,
    CreateSecret,
    CreateService,
    Decision,
    DeleteJob,
    DeleteNetworkPolicy,
    DeletePod,
    Event,
    StopPod,
)
from .foreign import LARGEST_ANSWER, document_of
from .hearing import Heard, HeardIncident, HeardStraggler, Phase, Stall, fingerprint, heard_of, is_news, unheard
from .naming import network_policy_name, pod_name
from .settings import Settings
from .snapshot import Disruption, Exit, Manifest, Pod, Refusal, Service, Snapshot, Waiting
from .waiting import VOLUMES_AND_NETWORK, WAIT_CONTAINER, WAITING_FOR_MASTER

__all__ = [
    "CHECKPOINT_VOLUME",
    "LARGEST_ANSWER",
    "SECRET_VOLUME",
    "VOLUMES_AND_NETWORK",
    "WAITING_FOR_MASTER",
    "WAIT_CONTAINER",
    "Action",
    "Asked",
    "CreateNetworkPolicy",
    "CreatePod",
    "CreateSecret",
    "CreateService",
    "Decision",
    "DeleteJob",
    "DeleteNetworkPolicy",
    "DeletePod",
    "Disruption",
    "Event",
    "Exit",
    "Heard",
    "HeardIncident",
    "HeardStraggler",
    "Manifest",
    "Phase",
    "Pod",
    "Refusal",
    "Service",
    "Settings",
    "Snapshot",
    "Stall",
    "StopPod",
    "Waiting",
    "decide",
    "document_of",
    "fingerprint",
    "heard_of",
    "is_news",
    "network_policy_name",
    "nodes_in_question",
    "pod_name",
    "unheard",
    "vanished",
    "whom_else_to_ask",
    "whom_to_ask",
]
