"""Opening files that may be anything: a pipe would keep its reader waiting, and a device has no end."""

import errno
import os
import stat
from pathlib import Path

WITH_CARE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

ABSENT = frozenset({errno.ENOENT, errno.ENOTDIR})
NOT_A_FILE = frozenset({errno.ELOOP, errno.ENXIO, errno.EISDIR})
"""What open(2) says of a link, of a socket, and of a directory."""


class NotRegularError(Exception):
    """There is something that is not a regular file."""


def open_regular(path: Path, how: int = os.O_RDONLY) -> int:
    """A descriptor of a regular file; nothing else is opened, nor followed.

    Args:
        path: The file.
        how: Flags of open(2); with O_CREAT it is made if it is not there.

    Raises:
        NotRegularError: It is a link, a pipe, a device or a directory.
        OSError: It is not there, or cannot be opened.
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
    """Up to so many bytes of a regular file, and one more if it has more.

    Raises:
        NotRegularError, OSError: As `open_regular`.
    """
    with open(open_regular(path), "rb") as file:
        return file.read(limit + 1)
