"""This supervisor's own directory, for its ranks' heartbeats and reports. It does not outlive the supervisor."""

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
"""Where it may be: in memory if possible, so that nothing ever waits for a disk."""

PREFIX = "ddpjob-supervisor-"
NEW = ".ddpjob-supervisor-"


@contextmanager
def private_directory() -> Iterator[Path]:
    """The directory, as long as the block runs. It is locked; those of killed supervisors are not.

    Raises:
        StorageError: It cannot be created anywhere.
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
"""Everybody may put things there: to open a pipe would be to wait for somebody who writes to it."""


def _locked(parent: Path) -> tuple[Path, int]:
    """A new, locked directory. Only once it is locked does it get a name that others sweep."""
    new = Path(tempfile.mkdtemp(prefix=NEW, dir=parent))
    lock = os.open(new, os.O_RDONLY | os.O_CLOEXEC)
    try:
        (new / "room").write_bytes(EMPTY)  # If memory is full, there is room for a directory, but not for a file.
        (new / "room").unlink()
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return new.rename(parent / f"{PREFIX}{new.name.removeprefix(NEW)}"), lock
    except OSError:
        os.close(lock)
        shutil.rmtree(new, ignore_errors=True)
        raise


def _sweep(parent: Path) -> None:
    """Removes what killed supervisors left."""
    for directory in parent.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):
            lock = os.open(directory, ANY_DIRECTORY)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(directory)
            finally:
                os.close(lock)
