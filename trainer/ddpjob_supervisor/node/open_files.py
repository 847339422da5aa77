"""Raises the limit on open files: rank 0's supervisor has a connection to each other supervisor and page client.

The usual soft limit, 1024, is meant for programs that use select(). A rank may use select(), but the supervisor does
not.
"""

import contextlib
import resource

FOUND = resource.getrlimit(resource.RLIMIT_NOFILE)
"""The soft and the hard limit with which this process was started."""


def raise_limit() -> None:
    """Raises this process's soft limit to its hard limit."""
    _, hard = FOUND
    with contextlib.suppress(OSError, ValueError):  # Some systems report a hard limit that they do not grant.
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def restore_limit(pid: int) -> None:
    """Gives a child process the limits with which this process was started."""
    if hasattr(resource, "prlimit"):
        with contextlib.suppress(OSError):  # The child may have ended already.
            resource.prlimit(pid, resource.RLIMIT_NOFILE, FOUND)
