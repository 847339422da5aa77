"""What a training program can tell DDPJob, and ask of it: in any rank of a job, and harmless everywhere else.

To import it takes no PyTorch, and some milliseconds.
"""

from ddpjob_trainer.reporting import activity, report
from ddpjob_trainer.request import stop_requested

__all__ = ["activity", "report", "stop_requested"]
