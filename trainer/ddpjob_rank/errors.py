"""Errors that are reported in one line, without a traceback.

TrainerError
+-- ConfigError        a user's mistake
|   +-- SupersededError    another run has taken over the checkpoints
+-- DivergedError      the model has become NaN or infinite
+-- StorageFullError   there is no room for a checkpoint
+-- StorageError       a checkpoint could not be written, and perhaps can be at the next try
|   +-- StorageUnavailableError  a checkpoint cannot be read, and perhaps can be at the next try
+-- CheckpointUnusableError  there are checkpoints, and none that this version can go on from
+-- PeerLostError      another process of the world went away, or never came
+-- DeviceFailedError  a GPU is broken
"""

from .exit_codes import ExitCode


class TrainerError(Exception):
    """An error whose message says what happened, where, and what would be right."""

    cause: str = "Application"
    exit_code: ExitCode = ExitCode.APPLICATION_ERROR


class ConfigError(TrainerError):
    """What was asked for cannot be done, however often it is tried."""

    cause = "ConfigError"
    exit_code = ExitCode.BAD_INPUT


class SupersededError(ConfigError):
    """Another run, of a later attempt or by mistake, writes into the checkpoint directory of this one."""


class DivergedError(TrainerError):
    """The loss, the gradients or the weights are not finite any more, and would be so again in another try."""

    cause = "Diverged"


class StorageFullError(TrainerError):
    """There is no room for a checkpoint."""

    cause = "StorageFull"
    exit_code = ExitCode.BAD_INPUT


class StorageError(TrainerError):
    """A disk or a file server is in trouble, which may pass: another try may succeed."""


class StorageUnavailableError(StorageError):
    """A checkpoint cannot be read now. To start over, or from an older one, would lose what it has."""

    cause = "StorageUnavailable"


class CheckpointUnusableError(TrainerError):
    """There are checkpoints of this program, and it cannot go on from them: only its user may let it start over."""

    cause = "CheckpointUnusable"
    exit_code = ExitCode.BAD_INPUT


class PeerLostError(TrainerError):
    """A process of the world is gone, or did not come in time."""

    cause = "PeerLost"


class DeviceFailedError(TrainerError):
    """A GPU does not work, whatever the program does: on another machine the same may go well."""

    cause = "DeviceFailed"
