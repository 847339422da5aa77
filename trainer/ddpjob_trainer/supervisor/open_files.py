"""How many files may be open: rank 0's supervisor has a connection to each other one, and its page to each client.

The usual 1024 are for programs that use select(), such as a rank may be; this one does not.
"""

import contextlib
import resource

FOUND = resource.getrlimit(resource.RLIMIT_NOFILE)
"""The limits, soft and hard, that this process was started with."""


def take_all() -> None:
    """Lets this process open as many as it may."""
    _, hard = FOUND
    with contextlib.suppress(OSError, ValueError):  # Some systems name a hard limit that they do not grant.
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def give_back(pid: int) -> None:
    """Gives a process started by this one the limits that it would have otherwise."""
    if hasattr(resource, "prlimit"):
        with contextlib.suppress(OSError):  # It may have ended already.
            resource.prlimit(pid, resource.RLIMIT_NOFILE, FOUND)
