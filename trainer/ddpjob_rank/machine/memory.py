"""Whether the kernel killed a process for lack of memory: it counts such kills for each cgroup.

A container runtime reports them only for the whole container. Which of its processes was killed, and that this caused
an error, can only be found out from inside. (https://docs.kernel.org/admin-guide/cgroup-v2.html#memory, and
cgroup-v1/memory before it.)
"""

from collections.abc import Iterator
from pathlib import Path

CAUSE = "OutOfMemory"
LOST_A_PROCESS = ("killed by signal: Killed", "exited unexpectedly", "terminated abruptly")
"""Phrases in errors of PyTorch's DataLoader and Python's process pools that mean that a process was killed."""


def kills(root: Path = Path("/")) -> int:
    """How many processes of this cgroup were killed for lack of memory so far; 0 if the kernel does not count."""
    for file in _counters(root):
        try:
            lines = file.read_text(encoding="utf-8").splitlines()
        except OSError:
            continue
        return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)
    return 0


def lost_a_process(error: BaseException) -> bool:
    """Whether an error says that a child of this process was killed."""
    return any(phrase in str(error) for phrase in LOST_A_PROCESS)


def _counters(root: Path) -> Iterator[Path]:
    """Files that may hold the count. In a container, the path in /proc is often not where its cgroup is mounted."""
    try:
        memberships = (root / "proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    places = {"memory": ("sys/fs/cgroup/memory", "memory.oom_control"), "": ("sys/fs/cgroup", "memory.events")}
    for membership in memberships:
        _, controllers, path = membership.split(":", 2)
        if controllers in places:
            mount, name = places[controllers]
            yield root / mount / path.lstrip("/") / name
            yield root / mount / name
