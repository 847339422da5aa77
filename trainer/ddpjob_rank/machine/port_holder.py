"""Which process has a port of this machine, as far as /proc shows this to this user."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

PROC = Path("/proc")
TIME_WAIT = "06"
"""State of a connection that no longer belongs to any process. (include/net/tcp_states.h)"""


def holder_of(port: int) -> str:
    """The process that has a TCP port, for messages: `process 4711 (python)`."""
    owners = dict(_sockets(port))
    for link in PROC.glob("[0-9]*/fd/*"):
        with contextlib.suppress(OSError):
            if str(link.readlink()).removeprefix("socket:") in owners:
                pid = int(link.parts[2])
                if pid == os.getpid():
                    return "this process itself"
                return f"process {pid} ({(PROC / str(pid) / 'comm').read_text(errors='replace').strip()})"
    user = next(iter(owners.values()), None)
    return "another process" if user in {None, os.geteuid()} else f"a process of user {user}"


def _sockets(port: int) -> Iterator[tuple[str, int]]:
    """The sockets at a port: for each, its inode, as a link in /proc/PID/fd shows it, and its user."""
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            for line in (PROC / "net" / table).read_text(encoding="ascii").splitlines()[1:]:
                _, local, _, state, _, _, _, user, _, inode, *_ = line.split()
                if state != TIME_WAIT and int(local.rpartition(":")[2], 16) == port:
                    yield f"[{inode}]", int(user)
