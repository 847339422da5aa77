"""What a file system error means for a job: whether the problem may pass and, if not, what has to be done first."""

import errno
import os
import re
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

from ddpjob_rank.errors import ConfigError, StorageError, StorageFullError, TrainerError

KINDS: dict[int, type[TrainerError]] = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG), StorageFullError),
    **dict.fromkeys((errno.EROFS, errno.EACCES, errno.EPERM), ConfigError),
    # The path is not a directory.
    **dict.fromkeys((errno.ENOENT, errno.ENOTDIR, errno.EEXIST, errno.ELOOP, errno.ENAMETOOLONG), ConfigError),
}
"""Errors that remain until somebody does something. All other errors may pass: errors of a disk or a file server in
trouble (EIO, ESTALE, ETIMEDOUT, …), and unforeseen errors."""

ADVICE: dict[type[TrainerError], str] = {
    StorageFullError: "free some space, or name another directory",
    ConfigError: "it must be a directory that this user may read and write",
    StorageError: "if this happens again, have the disk or the file server looked at",
}


URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{0,31}:/")
"""Matches the beginning of a URL, also if a slash is missing: a directory of this name would be lost with its pod."""
STORE_URL = (
    r"((s3|s3a|gs|az|azure|adl|abfs|abfss)://|abfss?://[A-Za-z0-9-]+@)[A-Za-z0-9][A-Za-z0-9._-]*"
    r"(/[^/?#@$\x00-\x20]+)*/?"
)
"""As in the operator's `spec`: matches the URL of a place in an object store, without credentials."""


def is_url(address: str) -> bool:
    """Whether an address is the URL of an object store, and not the path of a directory."""
    return URL.match(address) is not None


def checked_address(address: str | os.PathLike[str]) -> Path | str:
    """The path of the directory, or the URL of the place in an object store, that an address names.

    Raises:
        ConfigError: It is another URL, or one with credentials.
    """
    text = os.fspath(address)
    if not is_url(text):
        return Path(text)
    if not re.fullmatch(STORE_URL, text):
        raise ConfigError(
            f"{shown(text)}: must be a directory, or a URL such as s3://BUCKET/PATH, gs://BUCKET/PATH or"
            " az://CONTAINER/PATH, without user, password or query: credentials come from the environment"
        )
    return text


def shown(address: str) -> str:
    """An address as messages may repeat it: without a user, a password or a signature in a URL."""
    if not is_url(address):
        return address
    scheme, _, rest = address.partition(":")
    return f"{scheme}:{'//…' if '@' in rest else rest.partition('?')[0].partition('#')[0]}"


def directory_of(address: str | None) -> Path | None:
    """The directory that an address names; None if it names none, or an object store."""
    return Path(address) if address and not is_url(address) else None


def kind_of(number: int | None) -> type[TrainerError]:
    """The class of the error that a job raises for a file system error with this errno."""
    return KINDS.get(number or 0, StorageError)


def forbids(path: Path) -> str | None:
    """A sentence about the owner and the mode that keep this process from reading `path`. This does not pass.

    None if owners and modes permit reading. If reading fails anyway, a ticket may have expired, or a server may be in
    trouble.
    """
    with suppress(OSError):
        for place in (*reversed(path.parents), path):
            status = place.stat()
            wanted = os.X_OK if place != path else os.R_OK | (os.X_OK if stat.S_ISDIR(status.st_mode) else 0)
            if os.geteuid() != 0 and _bits(status) & wanted != wanted:
                return (
                    f"{place} belongs to user {status.st_uid}, group {status.st_gid}, with mode"
                    f" {stat.S_IMODE(status.st_mode):04o}, and this process is user {os.geteuid()},"
                    f" group {os.getegid()}"
                )
    return None


def _bits(status: os.stat_result) -> int:
    """A file's mode, shifted so that its lowest three bits apply to this process."""
    if status.st_uid == os.geteuid():
        return status.st_mode >> 6
    return status.st_mode >> 3 if status.st_gid in {os.getegid(), *os.getgroups()} else status.st_mode


def check_temporary() -> None:
    """Checks whether there is a directory for temporary files, which PyTorch needs as soon as it is imported.

    Raises:
        StorageError: There is none. This may pass: another node or a new pod may have room.
    """
    try:
        tempfile.gettempdir()
    except FileNotFoundError as error:
        raise StorageError(
            f"{error.strerror}: set TMPDIR to a directory of yours that has room, or mount an emptyDir at /tmp"
        ) from None
