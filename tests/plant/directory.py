"""The directory of a plant.

Its owner holds a lock in it. If nobody holds the lock, the owner was killed by SIGKILL.
"""

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from . import cgroups
from .build import CACHE
from .errors import PlantError

BASE = Path(tempfile.gettempdir()) / f"ddpjob-plant-{os.getuid()}"


@contextmanager
def plant_directory(base: Path | None = None) -> Iterator[Path]:
    """Creates a directory, and removes it at the end with all that runs or is mounted in it.

    First removes directories that were abandoned.
    """
    base = base or BASE
    base.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (base / "lock").open("w") as door:
        fcntl.flock(door, fcntl.LOCK_EX)  # No other process may check a new directory before its lock is taken.
        for other in base.iterdir():
            if other.is_dir() and (held := _try_lock(other)) is not None:
                remove(other)
                os.close(held)
        directory = Path(tempfile.mkdtemp(dir=base))
        mine = _try_lock(directory)
    if mine is None:
        raise PlantError(f"{directory} is locked by somebody else")
    try:
        yield directory
    finally:
        remove(directory)
        os.close(mine)


def remove(directory: Path) -> None:
    """Removes a plant's directory, ends all programs that run from it, and unmounts all that is mounted in it."""
    for process in processes_in(directory):
        process.kill()
    cgroups.remove(f"{directory.name}-*")
    for mount in mounts_in(directory):
        subprocess.run(["umount", "--lazy", mount], check=False, capture_output=True)
    if left := mounts_in(directory):
        raise PlantError(f"{directory} cannot be removed: {left[0]} is still mounted; umount it as root")
    shutil.rmtree(directory, ignore_errors=True)


def processes_in(directory: Path) -> list[psutil.Process]:
    """Programs whose command line contains the directory, as that of every program of the plant does."""
    return [
        process
        for process in psutil.process_iter(["exe", "cmdline"])
        if (process.info["exe"] or "").startswith(f"{CACHE}/")
        and any(f"{directory}/" in part for part in process.info["cmdline"] or ())
    ]


def mounts_in(directory: Path) -> list[str]:
    """Mount points below the directory, the innermost first."""
    table = Path("/proc/self/mounts")
    points = [line.split()[1] for line in table.read_text().splitlines()] if table.exists() else []
    return sorted((point for point in points if point.startswith(f"{directory}/")), reverse=True)


def _try_lock(directory: Path) -> int | None:
    file = os.open(directory / "lock", os.O_CREAT | os.O_RDWR, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(file)
        return None
    return file
