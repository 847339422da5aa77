"""The DDPJob type: fields, defaults, validation, status, and the contract between operator and pod.

Imports nothing else of ours.
"""

from .causes import Cause
from .job import DDPJob, Metadata
from .problems import BadInputError, InvalidJobError, Problem
from .restart import ExitCodes, Restart, RestartAction, RestartMode, RestartRule, Signal
from .scheduling import DisruptionMode, GangPolicy, Scheduling, SchedulingPolicy
from .spec import (
    Backend,
    Checkpoint,
    CheckpointInterval,
    CleanPodPolicy,
    DDPJobSpec,
    DisruptionPolicy,
    Elastic,
    Network,
    NetworkPolicy,
    Preflight,
    SuccessPolicy,
)
from .status import (
    AvoidedNodeName,
    Bookkeeping,
    Budget,
    CheckpointSeen,
    Condition,
    ConditionType,
    DDPJobStatus,
    DisplayStatus,
    Incarnations,
    Incident,
    NetworkStatus,
    NodeIncarnation,
    PodSecurity,
    Progress,
    State,
    Steps,
    Straggler,
)

__all__ = [
    "AvoidedNodeName",
    "Backend",
    "BadInputError",
    "Bookkeeping",
    "Budget",
    "Cause",
    "Checkpoint",
    "CheckpointInterval",
    "CheckpointSeen",
    "CleanPodPolicy",
    "Condition",
    "ConditionType",
    "DDPJob",
    "DDPJobSpec",
    "DDPJobStatus",
    "DisplayStatus",
    "DisruptionMode",
    "DisruptionPolicy",
    "Elastic",
    "ExitCodes",
    "GangPolicy",
    "Incarnations",
    "Incident",
    "InvalidJobError",
    "Metadata",
    "Network",
    "NetworkPolicy",
    "NetworkStatus",
    "NodeIncarnation",
    "PodSecurity",
    "Preflight",
    "Problem",
    "Progress",
    "Restart",
    "RestartAction",
    "RestartMode",
    "RestartRule",
    "Scheduling",
    "SchedulingPolicy",
    "Signal",
    "State",
    "Steps",
    "Straggler",
    "SuccessPolicy",
]
