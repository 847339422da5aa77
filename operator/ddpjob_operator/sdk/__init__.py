"""DDPJobs from Python: `ddpjob.submit`, `ddpjob.connect`, and the job that they return.

The package `ddpjob` exports these names, and imports this package when one of them is used.
"""

from ddpjob_operator.api import BadInputError, DDPJobStatus
from ddpjob_operator.client import ClusterError

from .connecting import connect
from .failures import JobFailed, RankFailed
from .handle import Job, JobEvent, LogLine
from .running import run
from .short_status import in_a_few_lines
from .submitting import submit
from .tracebacks import as_in_notebook

for _error in (BadInputError, ClusterError, JobFailed, RankFailed):
    # A traceback shows the name by which a program can catch the error and, in a notebook, ends with the user's line.
    _error.__module__ = "ddpjob"
    _error._render_traceback_ = as_in_notebook  # type: ignore[union-attr]

DDPJobStatus._repr_pretty_ = in_a_few_lines  # type: ignore[attr-defined]

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
