"""What the kernel counts for each cgroup: how much memory is left, and how many processes were killed for lack of it.

A container runtime reports such kills only for the whole container. Which of its processes was killed, and that this
caused an error, can only be found out from inside. (https://docs.kernel.org/admin-guide/cgroup-v2.html#memory, and
cgroup-v1/memory before it.)
"""

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path

CAUSE = "OutOfMemory"
MOUNTS = {"memory": "sys/fs/cgroup/memory", "": "sys/fs/cgroup"}
"""Where the hierarchies of versions 1 and 2 are mounted, by their names in /proc."""

AMOUNTS = {
    "memory": ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    "": ("memory.max", "memory.current", "inactive_file"),
}
"""The files with the limit and with the used memory, and the line of memory.stat with the used page cache that the
kernel drops before it kills anybody."""

LOST_A_PROCESS = ("killed by signal: Killed", "exited unexpectedly", "terminated abruptly")
"""Phrases in errors of PyTorch's DataLoader and of Python's process pools which mean that a process was killed."""


def free(root: Path = Path("/")) -> int:
    """Bytes of memory that this container may still use, at least 0, and at most what the machine has left.

    The page cache counts as free as far as the kubelet does not count it as used (its working set). 0 if unknown.
    """
    left = [kibibytes * 1024 for kibibytes in _numbers(root / "proc/meminfo", "MemAvailable:")]
    for controller, group in _groups(root):
        limit, used, cached = AMOUNTS[controller]
        known = _numbers(group / limit), _numbers(group / used)
        if all(known):
            left.append(known[0][0] - known[1][0] + sum(_numbers(group / "memory.stat", cached)))
    return max(0, min(left, default=0))


def kills(root: Path = Path("/")) -> int:
    """How many processes of this cgroup were killed for lack of memory so far; 0 if the kernel does not count."""
    # memory.events.local is not used, because a program may have put its processes into cgroups below its
    # container's.
    for text in _read(root, {"memory": "memory.oom_control", "": "memory.events"}):
        return next((int(line.split()[1]) for line in text.splitlines() if line.startswith("oom_kill ")), 0)
    return 0


def kills_together(root: Path = Path("/")) -> bool:
    """Whether the kernel kills all processes of this container, instead of one, for lack of memory.

    Only version 2 can do so. The kubelet then requests it, unless its configuration has `singleProcessOOMKill: true`.
    """
    return any(text.strip() == "1" for text in _read(root, {"": "memory.oom.group"}))


def lost_a_process(error: BaseException) -> bool:
    """Whether an error means that a child of this process was killed."""
    return any(phrase in str(error) for phrase in LOST_A_PROCESS)


def _read(root: Path, names: Mapping[str, str]) -> Iterator[str]:
    """The files of this process's memory cgroup and of the cgroups above it, the nearest first, in each hierarchy."""
    for controller, group in _groups(root):
        if controller in names:
            with contextlib.suppress(OSError):
                yield (group / names[controller]).read_text(encoding="utf-8")


def _groups(root: Path) -> Iterator[tuple[str, Path]]:
    """This process's memory cgroup and the cgroups above it, the nearest first, in each hierarchy.

    In a container, the path in /proc is often not the path at which its cgroup is mounted.
    """
    try:
        memberships = (root / "proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    for membership in memberships:
        _, controllers, path = membership.split(":", 2)
        if controllers in MOUNTS:
            mount, group = root / MOUNTS[controllers], Path(path.lstrip("/"))
            for place in dict.fromkeys((group, *group.parents)):
                yield controllers, mount / place


def _numbers(file: Path, begins: str = "") -> list[int]:
    """The numbers in those lines of a file that begin with this word, or that consist of a number alone.

    A limit may also be the word `max`.
    """
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    found = (line.removeprefix(begins).split() for line in lines if line.split()[:1] == [begins] or not begins)
    return [int(words[0]) for words in found if words and words[0].isdecimal()]
