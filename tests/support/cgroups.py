"""Real cgroups with little memory, to test what the kernel does to processes that use too much of it."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.plant.needs import leave_out

LIMIT_BYTES = 64 * 2**20
GREEDY = "held = []\nwhile True: held.append(bytearray(2**20))"
"""A program that uses too much memory."""


@contextmanager
def small_cgroup() -> Iterator[Path]:
    """A cgroup of 64 MiB. Skips the test if no cgroup can be created."""
    v1, v2 = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup/cgroup.controllers")
    parent, limit = (v2.parent, "memory.max") if v2.exists() else (v1, "memory.limit_in_bytes")
    group = parent / f"ddpjob-test-{os.getpid()}"
    try:
        group.mkdir()
    except OSError as error:
        leave_out(f"left out: no cgroup can be made here ({error}); run it on Linux, as root")
    try:
        if not (group / limit).exists():
            leave_out("left out: no cgroup can be given a memory limit here")
        (group / limit).write_text(str(LIMIT_BYTES))
        yield group
    finally:
        group.rmdir()


def within(group: Path, *command: str) -> list[str]:
    """A command line that runs the command in the cgroup."""
    return ["sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$@"', "sh", *command]
