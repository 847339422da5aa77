"""What a file system error means for a job: whether it passes, and if not, what to do first."""

import errno
import tempfile

from ddpjob_rank.errors import ConfigError, StorageError, StorageFullError, TrainerError

KINDS: dict[int, type[TrainerError]] = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG), StorageFullError),
    **dict.fromkeys((errno.EROFS, errno.EACCES, errno.EPERM), ConfigError),
    # The path is not a directory.
    **dict.fromkeys((errno.ENOENT, errno.ENOTDIR, errno.EEXIST, errno.ELOOP, errno.ENAMETOOLONG), ConfigError),
}
"""What does not pass. Everything else may: a disk or a file server in trouble (EIO, ESTALE, ETIMEDOUT, …), and
anything unforeseen."""

ADVICE: dict[type[TrainerError], str] = {
    StorageFullError: "free some space, or name another directory",
    ConfigError: "it must be a directory that this user may read and write",
    StorageError: "if that comes again, have the disk or the file server looked at",
}


def kind_of(number: int | None) -> type[TrainerError]:
    """What an error with this number is to a job."""
    return KINDS.get(number or 0, StorageError)


def check_temporary() -> None:
    """Checks whether there is a directory for temporary files: PyTorch wants one as soon as it is imported.

    Raises:
        StorageError: there is none, which may pass: on another node, or in a new pod, there may be room.
    """
    try:
        tempfile.gettempdir()
    except FileNotFoundError as error:
        raise StorageError(
            f"{error.strerror}: set TMPDIR to a directory of yours that has room, or mount an emptyDir at /tmp"
        ) from None
