"""The cgroups of nodes. Each is below this process's own cgroup, in every hierarchy of cgroup v1."""

import fnmatch
import os
import signal
import time
from pathlib import Path

BASE = Path("/sys/fs/cgroup")
PREFIX = "ddpjob-plant-"
GONE_SECONDS = 10.0
SHARES = 8192
"""The CPU shares of a node. By default, a whole node would get only as much CPU as any single process of the
machine."""
POLL_SECONDS = 0.05


def hierarchies() -> dict[str, str]:
    """The hierarchies of cgroup v1 that are mounted where they usually are, with this process's cgroup in each."""
    lines = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
    return {name: path for _, name, path in lines if name and (_place(name) / "cgroup.procs").exists()}


def make(name: str) -> list[Path]:
    """Creates a cgroup with this name in every hierarchy."""
    folders = [_place(option) / path.lstrip("/") / f"{PREFIX}{name}" for option, path in hierarchies().items()]
    for folder in folders:
        folder.mkdir(exist_ok=True)
        if (folder / "cpu.shares").exists():
            (folder / "cpu.shares").write_text(str(SHARES))
        for setting in ("cpuset.cpus", "cpuset.mems"):  # While these are empty, the cgroup cannot hold any process.
            if (folder / setting).exists():
                (folder / setting).write_text((folder.parent / setting).read_text())
    return folders


def remove(pattern: str) -> None:
    """Removes the cgroups whose names match, all cgroups below them, and all processes that still run in them."""
    for folder in _matching(pattern):
        for inner, _, _ in os.walk(folder, topdown=False):
            _remove(Path(inner))


def names() -> set[str]:
    """The names of the cgroups that exist."""
    return {folder.name.removeprefix(PREFIX) for folder in _matching("*")}


def _matching(pattern: str) -> list[Path]:
    """The matching cgroups. os.walk ignores folders that another plant removes meanwhile; Path.glob would fail."""
    tree = os.walk(BASE)
    return [Path(place, name) for place, inner, _ in tree for name in fnmatch.filter(inner, f"{PREFIX}{pattern}")]


def _place(option: str) -> Path:
    return BASE / option.removeprefix("name=")


def _remove(folder: Path) -> None:
    end = time.monotonic() + GONE_SECONDS
    while folder.exists():
        try:
            for pid in (folder / "cgroup.procs").read_text().split():
                os.kill(int(pid), signal.SIGKILL)
            folder.rmdir()
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(POLL_SECONDS)
