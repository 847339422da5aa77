"""Replaces files atomically, so that after a crash at any time they have either the old or the new content.

A run directory may come from somebody else, for example in a cloned repository. Therefore only regular files are
opened: reading a pipe could block, a device may have no end, and a link may lead to a file outside the directory.
"""

import contextlib
import errno
import fcntl
import json
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import psutil

from ddpjob_operator.api import BadInputError
from ddpjob_operator.text.foreign_json import parsed

LARGEST_BYTES = 64 << 20
"""The maximum size of a JSON document. Larger files are refused."""
NOT_A_FILE = frozenset({errno.ELOOP, errno.ENXIO, errno.EISDIR})
"""Errors of open(2) for a link, a socket, and a directory."""


def write_json(path: Path, value: Any) -> None:
    """Atomically replaces a file by a JSON document that only its owner can read: it may contain secret variables."""
    write_whole(path, json.dumps(value, indent=1) + "\n")


def write_whole(path: Path, text: str) -> None:
    """Writes a text file that only its owner can read. Atomically replaces any file of that name.

    Raises:
        OSError: the file cannot be written.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with _naming(path):
        temporary.touch(mode=0o600)
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)


@contextlib.contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Adds the file's name to an OSError, because the system's error about a full disk names no file."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None


def read_json(path: Path) -> Any:
    """The JSON document in a file; None if there is no such file.

    Raises:
        BadInputError: `path` is not a regular file.
        ValueError: the file is not a JSON document, or is larger than LARGEST_BYTES.
    """
    try:
        with open(_open_regular(path, os.O_RDONLY), "rb") as file:
            content = file.read(LARGEST_BYTES + 1)
    except FileNotFoundError:
        return None
    if len(content) > LARGEST_BYTES:
        raise ValueError(f"{path} has more than {LARGEST_BYTES} bytes")
    return parsed(content)


def _open_regular(path: Path, flags: int) -> int:
    """Opens a regular file, and returns its descriptor.

    Raises:
        BadInputError: `path` is not a regular file.
        OSError: the file does not exist, or cannot be opened.
    """
    try:
        descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
    except OSError as error:
        if error.errno not in NOT_A_FILE:
            raise
        raise BadInputError(f"{path} is not a regular file") from None
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise BadInputError(f"{path} is not a regular file")


PROBES, PROBE_SECONDS = 5, 0.02
LONGEST_NUMBER = 20
"""How many characters of a lock file are read. No pid is longer."""


class Lock:
    """A lock on a file that contains the holder's pid. It is released however the holder's process ends."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: IO[str] | None = None

    def acquire(self, *, writing: bool = True) -> bool:
        """Takes the lock, and writes this process's pid into the file. Returns False if another process holds it.

        If `writing` is false, the file keeps its content. This works even on a full disk, but then `signal` cannot
        reach the holder.
        """
        for _ in range(PROBES):
            if file := self._locked():
                break
            time.sleep(PROBE_SECONDS)  # Try again: a call of holder() in another process takes the lock briefly.
        else:
            return False
        if writing:
            with _naming(self._path):
                file.truncate(0)
                file.write(f"{os.getpid()}\n")
                file.flush()
        self._file = file
        return True

    def _locked(self) -> IO[str] | None:
        """Opens and locks the file. Returns None if another process holds the lock."""
        with contextlib.ExitStack() as unless_locked, contextlib.suppress(BlockingIOError, FileNotFoundError):
            descriptor = _open_regular(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
            file = unless_locked.enter_context(os.fdopen(descriptor, "a+", encoding="utf-8"))
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # The former holder may have deleted the file, and another process may have created a new one.
            if os.path.samestat(os.fstat(descriptor), self._path.stat()):
                unless_locked.pop_all()
                return file
        return None

    def release(self) -> None:
        """Releases the lock, if this process holds it."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def holder(self) -> int | None:
        """The pid of the process that holds the lock, or 0 if the file lacks it; None if the lock is free."""
        try:
            with self._opened() as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                except BlockingIOError:
                    content = file.read(LONGEST_NUMBER).strip()
                    return int(content) if content.isdecimal() else 0
        except FileNotFoundError:
            pass
        return None

    def signal(self, number: int) -> None:
        """Sends a signal to the process that holds the lock, if there is one.

        Raises:
            BadInputError: the holder belongs to another user, machine or container. An unrelated process here with
                the same pid gets no signal.
        """
        holder = self.holder()
        if holder and self._is_open_in(holder):
            with contextlib.suppress(ProcessLookupError):
                os.kill(holder, number)
        elif holder and self.holder() == holder:
            raise BadInputError(
                f"{self._path} is held by process {holder} of another user, machine or container: stop it there"
            )

    def _is_open_in(self, process: int) -> bool:
        """Whether `process` has the file open, like the holder, and is a process of this user on this machine."""
        try:
            return any(self._path.samefile(file.path) for file in psutil.Process(process).open_files())
        except (psutil.AccessDenied, psutil.NoSuchProcess, FileNotFoundError):
            return False

    def wait(self) -> None:
        """Blocks until the lock is free, or its file does not exist."""
        with contextlib.suppress(FileNotFoundError), self._opened() as file:
            fcntl.flock(file, fcntl.LOCK_SH)

    def _opened(self) -> IO[str]:
        return open(_open_regular(self._path, os.O_RDONLY), encoding="utf-8", errors="replace")


def tail(file: Path, size: int, start: int = 0) -> str:
    """The last `size` bytes of a file as text, without the bytes before the position `start`."""
    try:
        with file.open("rb") as content:
            content.seek(0, os.SEEK_END)
            content.seek(max(start, content.tell() - size))
            return content.read().decode(errors="replace").strip()
    except FileNotFoundError:
        return ""
