"""The pure engine: decisions about a job, from a snapshot and nothing else. Imports only the API."""

from .decide import decide
from .decision import Action, CreatePod, CreateService, Decision, DeletePod, Event
from .naming import pod_name
from .policies import DEADLINE_EXCEEDED
from .snapshot import Exit, Manifest, Pod, Service, Snapshot

__all__ = [
    "DEADLINE_EXCEEDED",
    "Action",
    "CreatePod",
    "CreateService",
    "Decision",
    "DeletePod",
    "Event",
    "Exit",
    "Manifest",
    "Pod",
    "Service",
    "Snapshot",
    "decide",
    "pod_name",
]
