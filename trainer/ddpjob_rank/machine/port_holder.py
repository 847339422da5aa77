"""Which process has a port of this machine, as far as /proc shows this to the current user."""

import contextlib
import os
from collections.abc import Collection, Iterator
from pathlib import Path

PROC = Path("/proc")
TIME_WAIT = "06"
"""The state of a connection that no longer belongs to any process. (include/net/tcp_states.h)"""


def holder_of(port: int) -> str:
    """The process that has a TCP port, as text for messages: `process 4711 (python)`."""
    owners = dict(_sockets(port))
    pid = _process_with(owners)
    if pid == os.getpid():
        return "this process itself"
    if pid is not None:
        return f"process {pid} ({_read(pid, 'comm').strip()})"
    user = next(iter(owners.values()), None)
    return "another process" if user in {None, os.geteuid()} else f"a process of user {user}"


def is_held_by_kin(port: int) -> bool:
    """Whether the port belongs to a descendant of this process's parent, or to nobody any more."""
    owners = dict(_sockets(port))
    pid, parent = _process_with(owners), os.getppid()
    if pid is None:
        return not owners
    while pid > 1 and pid != parent:
        # The name in the second field may contain anything; the fourth is the parent.
        pid = int((_read(pid, "stat").rpartition(")")[2].split() or ["", "0"])[1])
    return pid == parent


def _process_with(sockets: Collection[str]) -> int | None:
    """The process that has one of the sockets, if this user may see it."""
    for link in PROC.glob("[0-9]*/fd/*"):
        with contextlib.suppress(OSError):
            if str(link.readlink()).removeprefix("socket:") in sockets:
                return int(link.parts[2])
    return None


def _read(pid: int, name: str) -> str:
    with contextlib.suppress(OSError):
        return (PROC / str(pid) / name).read_text(errors="replace")
    return ""


def _sockets(port: int) -> Iterator[tuple[str, int]]:
    """The sockets at a port: the inode of each, as a link in /proc/PID/fd shows it, and its user."""
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            for line in (PROC / "net" / table).read_text(encoding="ascii").splitlines()[1:]:
                _, local, _, state, _, _, _, user, _, inode, *_ = line.split()
                if state != TIME_WAIT and int(local.rpartition(":")[2], 16) == port:
                    yield f"[{inode}]", int(user)
