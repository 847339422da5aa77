"""Functions with which a training program reports its progress to DDPJob and asks whether it should stop.

Outside a job they have no effect. The import needs no PyTorch and takes a few milliseconds.
"""

from ddpjob_rank.reporting.report import activity, report
from ddpjob_rank.reporting.request import stop_requested

__all__ = ["activity", "report", "stop_requested"]
