"""Files that survive a crash between any two lines: replaced as a whole or not at all.

A run directory may come from elsewhere, as with a cloned repository. So nothing but regular files is opened: a pipe
would keep its reader waiting, a device has no end, and where a link leads is somebody else's.
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

LARGEST_BYTES = 64 << 20
"""A JSON document is smaller."""
NOT_A_FILE = frozenset({errno.ELOOP, errno.ENXIO, errno.EISDIR})
"""What open(2) says of a link, of a socket, and of a directory."""


def write_json(path: Path, value: Any) -> None:
    """Replaces a file by a JSON document, atomically. It may hold an environment, so only its owner can read it."""
    write_whole(path, json.dumps(value, indent=1) + "\n")


def write_whole(path: Path, text: str) -> None:
    """Replaces whatever has a name by a file that only its owner can read, atomically.

    Raises:
        OSError: It cannot be written.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with _naming(path):
        temporary.touch(mode=0o600)
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)


@contextlib.contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Makes an error say which file it is about: the error of a full disk does not."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None


def read_json(path: Path) -> Any:
    """A JSON document, or None if there is no such file.

    Raises:
        BadInputError: It is not a regular file.
        ValueError: It is no JSON document, or a very large one.
    """
    try:
        with open(_open_regular(path, os.O_RDONLY), "rb") as file:
            content = file.read(LARGEST_BYTES + 1)
    except FileNotFoundError:
        return None
    if len(content) > LARGEST_BYTES:
        raise ValueError(f"{path} has more than {LARGEST_BYTES} bytes")
    return json.loads(content)


def _open_regular(path: Path, flags: int) -> int:
    """A descriptor of a regular file.

    Raises:
        BadInputError: It is something else.
        OSError: It is not there, or cannot be opened.
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
"""Letters of a process's number, and more."""


class Lock:
    """A lock on a file that its holder's death releases, however it dies; the file says who holds it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: IO[str] | None = None

    def acquire(self) -> bool:
        """Takes the lock and notes this process in the file; False if another process holds it."""
        for _ in range(PROBES):
            if file := self._locked():
                break
            time.sleep(PROBE_SECONDS)  # It may only be a process that asks for the holder.
        else:
            return False
        with _naming(self._path):
            file.truncate(0)
            file.write(f"{os.getpid()}\n")
            file.flush()
        self._file = file
        return True

    def _locked(self) -> IO[str] | None:
        """The file, with the lock; None if another process has it."""
        with contextlib.ExitStack() as unless_locked, contextlib.suppress(BlockingIOError, FileNotFoundError):
            descriptor = _open_regular(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
            file = unless_locked.enter_context(os.fdopen(descriptor, "a+", encoding="utf-8"))
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Who held it before may have removed the file, and a third process have made another one of its name.
            if os.path.samestat(os.fstat(descriptor), self._path.stat()):
                unless_locked.pop_all()
                return file
        return None

    def release(self) -> None:
        """Lets go of the lock."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def holder(self) -> int | None:
        """The process that holds the lock; None if it is free."""
        try:
            with self._opened() as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                except BlockingIOError:
                    said = file.read(LONGEST_NUMBER).strip()
                    return int(said) if said.isdecimal() else 0
        except FileNotFoundError:
            pass
        return None

    def signal(self, number: int) -> None:
        """Sends a signal to the process that holds the lock, if one does.

        Raises:
            BadInputError: It is another user's, or its number is that of another machine or container. Here another
                process may have this number, and is not touched.
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
        """Whether a process of this user and machine has the file open, as the holder of the lock has."""
        try:
            return any(self._path.samefile(one.path) for one in psutil.Process(process).open_files())
        except (psutil.AccessDenied, psutil.NoSuchProcess, FileNotFoundError):
            return False

    def wait(self) -> None:
        """Blocks until nobody holds the lock; a lock whose file is gone is held by nobody."""
        with contextlib.suppress(FileNotFoundError), self._opened() as file:
            fcntl.flock(file, fcntl.LOCK_SH)

    def _opened(self) -> IO[str]:
        return open(_open_regular(self._path, os.O_RDONLY), encoding="utf-8", errors="replace")
