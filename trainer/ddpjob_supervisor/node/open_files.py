"""The limit on open files: rank 0's supervisor has a connection to each other one, and its page to each client.

The usual 1024 is for programs that use select(), as a rank may; this one does not.
"""

import contextlib
import resource

FOUND = resource.getrlimit(resource.RLIMIT_NOFILE)
"""The limits, soft and hard, that this process was started with."""


def take_all() -> None:
    """Raises this process's limit as far as it may."""
    _, hard = FOUND
    with contextlib.suppress(OSError, ValueError):  # Some systems name a hard limit that they do not grant.
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def give_back(pid: int) -> None:
    """Gives a process started by this one the limits that it would have otherwise."""
    if hasattr(resource, "prlimit"):
        with contextlib.suppress(OSError):  # It may have ended already.
            resource.prlimit(pid, resource.RLIMIT_NOFILE, FOUND)
