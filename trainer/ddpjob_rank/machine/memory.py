"""Finds out whether the kernel killed a process for lack of memory: it counts such kills for each cgroup.

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

LOST_A_PROCESS = ("killed by signal: Killed", "exited unexpectedly", "terminated abruptly")
"""Phrases in errors of PyTorch's DataLoader and of Python's process pools which mean that a process was killed."""


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
    """The files of this process's memory cgroup and of the cgroups above it, the nearest first, in each hierarchy.

    In a container, the path in /proc is often not the path at which its cgroup is mounted.
    """
    try:
        memberships = (root / "proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    for membership in memberships:
        _, controllers, path = membership.split(":", 2)
        if controllers in names:
            mount, group = root / MOUNTS[controllers], Path(path.lstrip("/"))
            for place in dict.fromkeys((group, *group.parents)):
                with contextlib.suppress(OSError):
                    yield (mount / place / names[controllers]).read_text(encoding="utf-8")
