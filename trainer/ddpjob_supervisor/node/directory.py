"""A supervisor's private directory for the heartbeats and reports of its ranks, deleted when the supervisor ends."""

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ddpjob_rank.errors import StorageError
from ddpjob_rank.reporting.heartbeat import EMPTY

PARENTS = (Path("/dev/shm"), Path(os.environ.get("TMPDIR", "/tmp")))  # noqa: S108  (a private directory is made there)
"""Where the directory may be created: preferably in memory, so that nothing waits for a disk."""

PREFIX = "ddpjob-supervisor-"
NEW = ".ddpjob-supervisor-"


@contextmanager
def private_directory() -> Iterator[Path]:
    """Creates the directory and locks it; deletes it after the block.

    If a supervisor is killed, its directory remains, but is no longer locked.

    Raises:
        StorageError: The directory cannot be created in any of PARENTS.
    """
    directory, lock = _made()
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)
        os.close(lock)


def _made() -> tuple[Path, int]:
    for parent in PARENTS:
        with contextlib.suppress(OSError):
            _sweep(parent)
            return _locked(parent)
    places = " and ".join(map(str, PARENTS))
    raise StorageError(
        f"cannot create files in {places}: mount an emptyDir there, or name another directory with TMPDIR"
    )


ANY_DIRECTORY = os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY | os.O_NOFOLLOW
"""Flags that open only a directory: any user may create a pipe with that name, and opening a pipe would block."""


def _locked(parent: Path) -> tuple[Path, int]:
    """Creates a locked directory.

    Other supervisors remove directories by their name, so it gets that name only when locked.
    """
    new = Path(tempfile.mkdtemp(prefix=NEW, dir=parent))
    lock = os.open(new, os.O_RDONLY | os.O_CLOEXEC)
    try:
        # A full file system in memory still has room for a directory, but not for a file.
        (new / "room").write_bytes(EMPTY)
        (new / "room").unlink()
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return new.rename(parent / f"{PREFIX}{new.name.removeprefix(NEW)}"), lock
    except OSError:
        os.close(lock)
        shutil.rmtree(new, ignore_errors=True)
        raise


def _sweep(parent: Path) -> None:
    """Removes the directories of killed supervisors, which are no longer locked."""
    for directory in parent.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):
            lock = os.open(directory, ANY_DIRECTORY)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(directory)
            finally:
                os.close(lock)
