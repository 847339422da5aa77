"""A file to which records are appended, each with one write that does not wait for the disk."""

import errno
import os
from pathlib import Path

from ddpjob_rank.machine.regular_file import NotRegularError, open_regular


class AppendedFile:
    """A regular file that is opened for appending. Links and pipes are refused, because they may lead anywhere.

    Raises:
        OSError: The file cannot be written, or is not a regular file.
    """

    def __init__(self, path: Path) -> None:
        try:
            self._descriptor = open_regular(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        except NotRegularError:
            raise OSError(errno.EINVAL, f"{path.name} is not a regular file") from None

    def append(self, record: bytes) -> None:
        """Appends a record."""
        while record:
            record = record[os.write(self._descriptor, record) :]

    def last_byte(self) -> bytes:
        """The last byte of the file; empty if the file is empty."""
        size = os.fstat(self._descriptor).st_size
        return os.pread(self._descriptor, 1, size - 1) if size else b""

    def close(self) -> None:
        """Closes the file."""
        os.close(self._descriptor)
