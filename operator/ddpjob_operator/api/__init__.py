"""The DDPJob type: fields, defaults, validation, status, and the contract between operator and pod.

Imports nothing else of ours.
"""

from .job import DDPJob, Metadata
from .problems import BadInputError, InvalidJobError, Problem
from .spec import Backend, Checkpoint, DDPJobSpec, NetworkPolicy, Restart
from .status import Budget, Cause, Condition, ConditionType, DDPJobStatus, Failure, Incarnations, PodSecurity, State

__all__ = [
    "Backend",
    "BadInputError",
    "Budget",
    "Cause",
    "Checkpoint",
    "Condition",
    "ConditionType",
    "DDPJob",
    "DDPJobSpec",
    "DDPJobStatus",
    "Failure",
    "Incarnations",
    "InvalidJobError",
    "Metadata",
    "NetworkPolicy",
    "PodSecurity",
    "Problem",
    "Restart",
    "State",
]
