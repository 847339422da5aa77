"""A file to which whole records are added, by one write each, without waiting for the disk."""

import os
from pathlib import Path


class AppendedFile:
    """The end of a file.

    Raises:
        OSError: It cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)

    def append(self, record: bytes) -> None:
        """Adds a record."""
        while record:
            record = record[os.write(self._descriptor, record) :]

    def last_byte(self) -> bytes:
        """Empty if the file is empty."""
        size = os.fstat(self._descriptor).st_size
        return os.pread(self._descriptor, 1, size - 1) if size else b""

    def close(self) -> None:
        """Closes the file."""
        os.close(self._descriptor)
