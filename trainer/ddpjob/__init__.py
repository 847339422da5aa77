"""Lets a training program resume, report its progress to DDPJob, and stop when it is told to; and submits jobs.

Importing this package takes a few milliseconds, and imports neither PyTorch nor NumPy nor a Kubernetes client: the
names in HOMES are imported when they are used.
"""

from typing import TYPE_CHECKING, Any

from ddpjob_rank.errors import (
    CheckpointUnusableError,
    ConfigError,
    DivergedError,
    PeerLostError,
    StorageError,
    StorageFullError,
    StorageUnavailableError,
    SupersededError,
    TrainerError,
)
from ddpjob_rank.reporting.report import activity, report
from ddpjob_rank.reporting.request import stop_requested
from ddpjob_rank.reporting.result import set_result
from ddpjob_rank.reporting.save_request import on_save_request

if TYPE_CHECKING:
    from ddpjob_operator.api.problems import BadInputError
    from ddpjob_operator.client.errors import ClusterError
    from ddpjob_operator.sdk.connecting import connect
    from ddpjob_operator.sdk.failures import JobFailed, RankFailed
    from ddpjob_operator.sdk.handle import Job, JobEvent, LogLine
    from ddpjob_operator.sdk.running import run
    from ddpjob_operator.sdk.submitting import submit

    from .training.checkpoints import Checkpoints
    from .training.newest import newest
    from .training.resumed import Resumed
    from .training.training import Training

__all__ = [
    "BadInputError",
    "CheckpointUnusableError",
    "Checkpoints",
    "ClusterError",
    "ConfigError",
    "DivergedError",
    "Job",
    "JobEvent",
    "JobFailed",
    "LogLine",
    "PeerLostError",
    "RankFailed",
    "Resumed",
    "StorageError",
    "StorageFullError",
    "StorageUnavailableError",
    "SupersededError",
    "TrainerError",
    "Training",
    "activity",
    "connect",
    "newest",
    "on_save_request",
    "report",
    "run",
    "set_result",
    "stop_requested",
    "submit",
]

LIBRARY, SDK = "ddpjob.training", "ddpjob_operator"
HOMES = {
    "Checkpoints": f"{LIBRARY}.checkpoints",
    "Resumed": f"{LIBRARY}.resumed",
    "Training": f"{LIBRARY}.training",
    "newest": f"{LIBRARY}.newest",
    "BadInputError": f"{SDK}.api.problems",
    "ClusterError": f"{SDK}.client.errors",
    "JobEvent": f"{SDK}.sdk.handle",
    "Job": f"{SDK}.sdk.handle",
    "JobFailed": f"{SDK}.sdk.failures",
    "LogLine": f"{SDK}.sdk.handle",
    "RankFailed": f"{SDK}.sdk.failures",
    "connect": f"{SDK}.sdk.connecting",
    "run": f"{SDK}.sdk.running",
    "submit": f"{SDK}.sdk.submitting",
}
"""The modules of those names that need more than Python: the library needs PyTorch, the SDK a Kubernetes client."""

EXTRAS = {
    LIBRARY: ("trainer", frozenset({"torch", "numpy", "msgspec"})),
    SDK: ("cli", frozenset({"kubernetes", "urllib3", "pathspec", "psutil", "pydantic", "yaml", "rich"})),
}
"""The extra that each needs, and packages that are missing if it is not installed."""


def _named(error: type[Exception]) -> None:
    """Lets a traceback show the name by which a program can catch an error."""
    error.__module__ = __name__


for _error in [name for name in __all__ if name in globals() and name.endswith("Error")]:
    _named(globals()[_error])


def __dir__() -> list[str]:
    """The public names, for completion in a shell: most are imported only when they are used."""
    return __all__


def __getattr__(name: str) -> Any:
    """Imports what needs PyTorch or a Kubernetes client when it is used."""
    if name not in HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415

    extra, packages = EXTRAS[LIBRARY if HOMES[name].startswith(LIBRARY) else SDK]
    try:
        found = getattr(import_module(HOMES[name]), name)
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in packages:
            raise
        message = f"ddpjob.{name} needs {missing}: install ddpjob[{extra}]"
        raise ModuleNotFoundError(message, name=error.name) from error
    if isinstance(found, type) and issubclass(found, Exception):
        _named(found)
    return found
