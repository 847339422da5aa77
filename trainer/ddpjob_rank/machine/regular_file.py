"""Opens only regular files, because a pipe would keep its reader waiting, and a device has no end."""

import errno
import os
import stat
from pathlib import Path

WITH_CARE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

ABSENT = frozenset({errno.ENOENT, errno.ENOTDIR})
NOT_A_FILE = frozenset({errno.ELOOP, errno.ENXIO, errno.EISDIR})
"""The errors of open(2) for a link, a socket, and a directory."""


class NotRegularError(Exception):
    """A file with this name exists, but is not a regular file."""


def open_regular(path: Path, how: int = os.O_RDONLY) -> int:
    """Opens a regular file and returns its descriptor. Opens nothing else, and follows no link.

    Args:
        path: The file.
        how: Flags of open(2). With O_CREAT, a missing file is created.

    Raises:
        NotRegularError: The path is a link, a pipe, a device or a directory.
        OSError: The file is missing, or cannot be opened.
    """
    try:
        if not stat.S_ISREG(path.lstat().st_mode):
            raise NotRegularError
    except FileNotFoundError:
        if not how & os.O_CREAT:
            raise
    try:
        descriptor = os.open(path, how | WITH_CARE, 0o644)
    except OSError as error:
        if error.errno in NOT_A_FILE:
            raise NotRegularError from error
        raise
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise NotRegularError


def read_regular(path: Path, limit: int) -> bytes:
    """Reads at most `limit` + 1 bytes of a regular file.

    A result longer than `limit` means that the file is too long.

    Raises:
        NotRegularError, OSError: As for `open_regular`.
    """
    with open(open_regular(path), "rb") as file:
        return file.read(limit + 1)
