"""A file that the processes of a machine read together, without copies of their own."""

import os
import weakref
from collections.abc import Iterator
from pathlib import Path

PORTION_BYTES = 32 * 1024 * 1024
"""How much is read or written at once."""

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class SharedFile:
    """An open file, with a name in some directory or without: then it is gone with the last process that uses it."""

    def __init__(self, descriptor: int) -> None:
        """Takes over an open file."""
        self._descriptor = descriptor
        weakref.finalize(self, os.close, descriptor)

    @classmethod
    def opened(cls, path: Path | str) -> "SharedFile":
        """A file with a name.

        Raises:
            OSError: It cannot be opened.
        """
        return cls(os.open(path, os.O_RDONLY))

    @classmethod
    def in_memory(cls) -> "SharedFile":
        """A new one. It does not count towards the size of /dev/shm, which in containers is often 64 MB."""
        return cls(os.memfd_create("ddpjob"))

    @classmethod
    def of(cls, path: str, identity: str) -> "SharedFile | None":
        """Another process's, by its address; None if that is on another machine, or in another container."""
        try:
            file = cls.opened(path)
        except OSError:
            return None
        return file if file.address[1] == identity else None

    @property
    def address(self) -> tuple[str, str]:
        """Its path for other processes of the machine, and what no other file has: not even on another machine."""
        known = os.fstat(self._descriptor)
        machine = BOOT_ID.read_text(encoding="ascii").strip()
        return f"/proc/{os.getpid()}/fd/{self._descriptor}", f"{machine}/{known.st_dev}/{known.st_ino}"

    @property
    def path(self) -> Path:
        """For this process."""
        return Path(f"/proc/self/fd/{self._descriptor}")

    @property
    def size(self) -> int:
        """In bytes."""
        return os.fstat(self._descriptor).st_size

    def write(self, data: memoryview) -> None:
        """Adds to its end."""
        while data:
            data = data[os.write(self._descriptor, data) :]

    def forget(self) -> None:
        """Asks the kernel to forget what it remembers of it: what is read next comes from where it is kept."""
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(self._descriptor, 0, 0, os.POSIX_FADV_DONTNEED)

    def portions(self, size: int = PORTION_BYTES) -> Iterator[bytes]:
        """All of it, from the beginning, so many bytes at a time."""
        start = 0
        while portion := os.pread(self._descriptor, size, start):
            yield portion
            start += len(portion)
