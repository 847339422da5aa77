"""Files that survive a crash between any two lines: replaced as a whole or not at all."""

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any


def write_json(path: Path, value: Any) -> None:
    """Replaces a file by a JSON document, atomically. It may hold an environment, so only its owner can read it."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with _naming(path):
        temporary.touch(mode=0o600)
        temporary.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")
        temporary.replace(path)


@contextlib.contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Makes an error say which file it is about: the error of a full disk does not."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None


def read_json(path: Path) -> Any:
    """A JSON document, or None if there is no such file."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None


PROBES, PROBE_SECONDS = 5, 0.02


class Lock:
    """A lock on a file that its holder's death releases, however it dies; the file says who holds it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: IO[str] | None = None

    def acquire(self) -> bool:
        """Takes the lock and notes this process in the file; False if another process holds it."""
        file = self._path.open("a+", encoding="utf-8")
        for _ in range(PROBES):
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            time.sleep(PROBE_SECONDS)  # It may only be a process that asks for the holder.
        else:
            file.close()
            return False
        with _naming(self._path):
            file.truncate(0)
            file.write(f"{os.getpid()}\n")
            file.flush()
        self._file = file
        return True

    def release(self) -> None:
        """Lets go of the lock."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def holder(self) -> int | None:
        """The process that holds the lock; None if it is free."""
        try:
            with self._path.open(encoding="utf-8") as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except FileNotFoundError:
            return None
        except BlockingIOError:
            said = self._path.read_text(encoding="utf-8", errors="replace").strip()
            return int(said) if said.isdecimal() else 0
        return None

    def wait(self) -> None:
        """Blocks until nobody holds the lock; a lock whose file is gone is held by nobody."""
        with contextlib.suppress(FileNotFoundError), self._path.open(encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_SH)
