"""A file that the processes of a machine share, so that they do not need a copy each."""

import fcntl
import os
import weakref
from collections.abc import Iterator
from pathlib import Path

PORTION_BYTES = 32 * 1024 * 1024
"""Bytes that are read or written by one call."""

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class SharedFile:
    """An open file, in a directory or only in memory. A file in memory is deleted when the last process closes it."""

    def __init__(self, descriptor: int) -> None:
        """Takes over the descriptor of an open file, and closes it in the end."""
        self._descriptor = descriptor
        self.close = weakref.finalize(self, os.close, descriptor)

    @classmethod
    def opened(cls, path: Path | str) -> "SharedFile":
        """Opens a file by its path, to be read.

        Raises:
            OSError: The file cannot be opened.
        """
        return cls(os.open(path, os.O_RDONLY))

    @classmethod
    def in_memory(cls) -> "SharedFile":
        """Creates a file in memory. It is not in /dev/shm, whose size in containers is often limited to 64 MB."""
        descriptor = os.memfd_create("ddpjob", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.fchmod(descriptor, 0o600)  # Not executable, and for this user only.
        return cls(descriptor)

    @classmethod
    def of(cls, path: str, identity: str) -> "SharedFile | None":
        """Opens another process's file by its `address`. None if it is on another machine or in another container."""
        try:
            file = cls.opened(path)
        except OSError:
            return None
        return file if file.address[1] == identity else None

    @property
    def address(self) -> tuple[str, str]:
        """A path by which other processes of this machine can open the file, and an identity unique to the file."""
        known = os.fstat(self._descriptor)
        machine = BOOT_ID.read_text(encoding="ascii").strip()
        return f"/proc/{os.getpid()}/fd/{self._descriptor}", f"{machine}/{known.st_dev}/{known.st_ino}"

    @property
    def path(self) -> Path:
        """A path by which this process can open the file."""
        return Path(f"/proc/self/fd/{self._descriptor}")

    @property
    def descriptor(self) -> int:
        """The descriptor, valid as long as this object."""
        return self._descriptor

    @property
    def size(self) -> int:
        """The size in bytes."""
        return os.fstat(self._descriptor).st_size

    def write(self, data: memoryview) -> None:
        """Appends all of `data`."""
        while data:
            data = data[os.write(self._descriptor, data) :]

    def empty(self) -> None:
        """Removes the content, for all processes that have this file open."""
        os.ftruncate(self._descriptor, 0)

    def seal(self) -> None:
        """Makes a file in memory unchangeable, for all processes."""
        seals = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL
        fcntl.fcntl(self._descriptor, fcntl.F_ADD_SEALS, seals)

    def drop_page_cache(self) -> None:
        """Asks the kernel to drop the file from its page cache, so that the next read comes from the storage."""
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(self._descriptor, 0, 0, os.POSIX_FADV_DONTNEED)

    def portions(self, size: int = PORTION_BYTES) -> Iterator[bytes]:
        """The content from the beginning, in portions of `size` bytes; the last one may be smaller."""
        start = 0
        while portion := os.pread(self._descriptor, size, start):
            yield portion
            start += len(portion)
