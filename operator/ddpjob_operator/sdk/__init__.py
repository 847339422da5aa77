"""DDPJobs from Python: `ddpjob.submit`, `ddpjob.connect`, and the job that they return.

The package `ddpjob` exports these names, and imports this package when one of them is used.
"""

from ddpjob_operator.api import BadInputError
from ddpjob_operator.client import ClusterError

from .connecting import connect
from .failures import JobFailed, RankFailed
from .handle import Job, JobEvent, LogLine
from .running import run
from .submitting import submit

__all__ = [
    "BadInputError",
    "ClusterError",
    "Job",
    "JobEvent",
    "JobFailed",
    "LogLine",
    "RankFailed",
    "connect",
    "run",
    "submit",
]
