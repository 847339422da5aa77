"""The DDPJob type: fields, defaults, validation, status, and the contract between operator and pod.

Imports nothing else of ours.
"""

from .causes import Cause
from .job import DDPJob, Metadata
from .problems import BadInputError, InvalidJobError, Problem
from .restart import Restart, RestartAction, RestartRule, Signal
from .spec import Backend, Checkpoint, CleanPodPolicy, DDPJobSpec, Elastic, NetworkPolicy, SuccessPolicy
from .status import (
    AvoidedNode,
    Budget,
    Condition,
    ConditionType,
    DDPJobStatus,
    Failure,
    Incarnations,
    PodSecurity,
    State,
)

__all__ = [
    "AvoidedNode",
    "Backend",
    "BadInputError",
    "Budget",
    "Cause",
    "Checkpoint",
    "CleanPodPolicy",
    "Condition",
    "ConditionType",
    "DDPJob",
    "DDPJobSpec",
    "DDPJobStatus",
    "Elastic",
    "Failure",
    "Incarnations",
    "InvalidJobError",
    "Metadata",
    "NetworkPolicy",
    "PodSecurity",
    "Problem",
    "Restart",
    "RestartAction",
    "RestartRule",
    "Signal",
    "State",
    "SuccessPolicy",
]
