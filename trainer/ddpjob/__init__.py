"""Lets a training program resume, report its progress to DDPJob, and stop when it is told to.

Importing this package takes a few milliseconds, and imports neither PyTorch nor NumPy: `Training`, `Checkpoints` and
`newest` are imported when they are used.
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
from ddpjob_rank.reporting.save_request import on_save_request

if TYPE_CHECKING:
    from .training.checkpoints import Checkpoints
    from .training.newest import newest
    from .training.resumed import Resumed
    from .training.training import Training

__all__ = [
    "CheckpointUnusableError",
    "Checkpoints",
    "ConfigError",
    "DivergedError",
    "PeerLostError",
    "Resumed",
    "StorageError",
    "StorageFullError",
    "StorageUnavailableError",
    "SupersededError",
    "TrainerError",
    "Training",
    "activity",
    "newest",
    "on_save_request",
    "report",
    "stop_requested",
]

for _error in [name for name in __all__ if name.endswith("Error")]:
    globals()[_error].__module__ = __name__  # A traceback then shows the name by which a program can catch the error.

HOMES = {"Checkpoints": "checkpoints", "Resumed": "resumed", "Training": "training", "newest": "newest"}
"""For each public name that needs PyTorch, its module."""


def __getattr__(name: str) -> Any:
    """Imports a name that needs PyTorch when it is first used."""
    if name not in HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415

    try:
        return getattr(import_module(f".training.{HOMES[name]}", __name__), name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in {"torch", "numpy", "msgspec"}:
            raise
        message = f"ddpjob.{name} needs {error.name}: install ddpjob[trainer]"
        raise ModuleNotFoundError(message, name=error.name) from error
