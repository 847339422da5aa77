"""The pure engine: decisions about a job, from a snapshot and nothing else. Imports only the API."""

from .conditions import events
from .decide import decide
from .decision import (
    Action,
    CreateNetworkPolicy,
    CreatePod,
    CreatePodGroup,
    CreateSecret,
    CreateService,
    CreateWorkload,
    Decision,
    DeleteJob,
    DeleteNetworkPolicy,
    DeletePod,
    DeletePodGroup,
    DeleteWorkload,
    Event,
    InLine,
    MarkFinished,
    StopPod,
)
from .foreign import LARGEST_ANSWER, document_of
from .incidents.price import present as present_budget
from .manifests.children import CHECKPOINT_VOLUME, SCHEDULING_API, SECRET_VOLUME
from .manifests.init_containers import VOLUMES_AND_NETWORK, WAIT_CONTAINER, WAITING_FOR_MASTER
from .manifests.names import network_policy_name, pod_name
from .manifests.volumes import lost_with_pods
from .policies.end import deadline, expiry, start_deadline
from .reports import Heard, HeardStraggler, Phase, Stall, fingerprint, heard_of, is_news, unheard
from .settings import Settings
from .snapshot import Asked, Disruption, Exit, Manifest, Needs, Pod, PodGroup, Refusal, Service, Snapshot, Waiting

__all__ = [
    "CHECKPOINT_VOLUME",
    "LARGEST_ANSWER",
    "SCHEDULING_API",
    "SECRET_VOLUME",
    "VOLUMES_AND_NETWORK",
    "WAITING_FOR_MASTER",
    "WAIT_CONTAINER",
    "Action",
    "Asked",
    "CreateNetworkPolicy",
    "CreatePod",
    "CreatePodGroup",
    "CreateSecret",
    "CreateService",
    "CreateWorkload",
    "Decision",
    "DeleteJob",
    "DeleteNetworkPolicy",
    "DeletePod",
    "DeletePodGroup",
    "DeleteWorkload",
    "Disruption",
    "Event",
    "Exit",
    "Heard",
    "HeardStraggler",
    "InLine",
    "Manifest",
    "MarkFinished",
    "Needs",
    "Phase",
    "Pod",
    "PodGroup",
    "Refusal",
    "Service",
    "Settings",
    "Snapshot",
    "Stall",
    "StopPod",
    "Waiting",
    "deadline",
    "decide",
    "document_of",
    "events",
    "expiry",
    "fingerprint",
    "heard_of",
    "is_news",
    "lost_with_pods",
    "network_policy_name",
    "pod_name",
    "present_budget",
    "start_deadline",
    "unheard",
]
