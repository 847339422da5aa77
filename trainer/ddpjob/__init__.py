"""Functions with which a training program reports its progress to DDPJob and checks whether it was told to stop.

Outside a job they have no effect. Importing this package takes a few milliseconds, and does not import PyTorch.
"""

from ddpjob_rank.reporting.report import activity, report
from ddpjob_rank.reporting.request import stop_requested

__all__ = ["activity", "report", "stop_requested"]
