"""What a training program can tell DDPJob and ask it: in any rank of a job, and harmless everywhere else.

Importing it needs no PyTorch, and takes a few milliseconds.
"""

from ddpjob_rank.reporting.report import activity, report
from ddpjob_rank.reporting.request import stop_requested

__all__ = ["activity", "report", "stop_requested"]
