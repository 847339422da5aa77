"""This process's open files and their limit. Some tests have more connections than the usual limit of 1,024."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ENOUGH = 8192


@contextmanager
def many_files() -> Iterator[None]:
    """Raises the limit as far as possible while the block runs."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY:
        most = ENOUGH if hard == resource.RLIM_INFINITY else min(hard, ENOUGH)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, most), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def open_files() -> int:
    """How many files this process has open now (on Linux)."""
    return len([*Path("/proc/self/fd").iterdir()])
