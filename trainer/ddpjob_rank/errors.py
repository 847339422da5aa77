"""Errors that are reported in one line, without a traceback.

TrainerError
+-- ConfigError        a user's mistake
|   +-- SupersededError    another run has taken over the checkpoint directory
+-- DivergedError      the model has become NaN or infinite
+-- StorageFullError   there is no room for a checkpoint
+-- StorageError       a checkpoint could not be written: another try may succeed
|   +-- StorageUnavailableError  a checkpoint cannot be read: another try may succeed
|   +-- CheckpointMissedError  an object store did not accept a checkpoint: training goes on
+-- CheckpointUnusableError  there are checkpoints, but this version cannot resume from them
+-- PeerLostError      another process of the world was lost, or never joined
+-- DeviceFailedError  a GPU is broken
"""

from .exit_codes import ExitCode


class TrainerError(Exception):
    """The base of all errors of the library.

        try:
            training = ddpjob.Training(model=model, optimizer=optimizer, directory="checkpoints")
        except ddpjob.TrainerError as error:
            raise SystemExit(f"training cannot begin: {error}") from error

    The message contains what happened, where, and what would be right.
    """

    cause: str = "Application"
    exit_code: ExitCode = ExitCode.APPLICATION_ERROR


class ConfigError(TrainerError):
    """The configuration is wrong, so another try would fail in the same way."""

    cause = "ConfigError"
    exit_code = ExitCode.BAD_INPUT


class SupersededError(ConfigError):
    """Another run writes to this run's checkpoint directory: a later attempt, or one that was started by mistake."""


class DivergedError(TrainerError):
    """The loss, the gradients or the weights are no longer finite. Another try would diverge again."""

    cause = "Diverged"


class StorageFullError(TrainerError):
    """There is no room for a checkpoint."""

    cause = "StorageFull"
    exit_code = ExitCode.BAD_INPUT


class StorageError(TrainerError):
    """A disk or a file server has a problem. The problem may pass, so another try may succeed."""


class StorageUnavailableError(StorageError):
    """A checkpoint cannot be read now. Starting over, or from an older checkpoint, would lose its progress."""

    cause = "StorageUnavailable"


class CheckpointMissedError(StorageError):
    """A checkpoint could not be saved. The next save may succeed, so training goes on."""

    cause = "StorageUnavailable"


class CheckpointUnusableError(TrainerError):
    """This program has checkpoints, but cannot resume from them. Only the user may decide to start over."""

    cause = "CheckpointUnusable"
    exit_code = ExitCode.BAD_INPUT


class PortTakenError(TrainerError):
    """Another process listens on a port that this one needs. The other process may have ended before the next try."""


class PeerLostError(TrainerError):
    """Another process of the world was lost, or did not join in time."""

    cause = "PeerLost"
    waited: bool = False
    """Whether the process waited for another process until its timeout. The other process may be alive, but busy."""


class DeviceFailedError(TrainerError):
    """A GPU is broken, and the program cannot help it. On another machine the program may succeed."""

    cause = "DeviceFailed"
