"""Raises the limit on open files: rank 0's supervisor has a connection to each other supervisor and page client.

The usual soft limit, 1024, is for programs that use select(). A rank may use select(), but the supervisor does not.
"""

import contextlib
import resource

FOUND = resource.getrlimit(resource.RLIMIT_NOFILE)
"""The limits, soft and hard, that this process was started with."""


def raise_limit() -> None:
    """Raises this process's soft limit to its hard limit."""
    _, hard = FOUND
    with contextlib.suppress(OSError, ValueError):  # Some systems name a hard limit that they do not grant.
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def restore_limit(pid: int) -> None:
    """Gives a child process the limits that this process was started with."""
    if hasattr(resource, "prlimit"):
        with contextlib.suppress(OSError):  # The child may have ended already.
            resource.prlimit(pid, resource.RLIMIT_NOFILE, FOUND)
