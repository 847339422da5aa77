"""Derives findings from a machine's facts, which `facts.inspect_machine` collects. Pure."""

import os
from collections.abc import Iterator, Mapping

from ddpjob_rank.console import counted
from ddpjob_rank.environment import Env
from ddpjob_rank.errors import ConfigError, StorageError
from ddpjob_rank.machine.storage import ADVICE, kind_of

from .facts import Directory, Facts
from .findings import Finding, Level

MIB, GIB = 1 << 20, 1 << 30

CONTAINER_DEFAULT = 64 * MIB
"""The default size of shared memory in a container. DataLoader workers soon need more."""

USUAL_CHECKPOINT = GIB // 2
"""The size that is assumed for a checkpoint while none exists."""

FILES_AT_LEAST = 1024
FILES_OF_A_PROCESS, FILES_FOR_A_PEER = 512, 2
"""How many files a process opens for its libraries, data and pipes, and how many for gloo's connections to one peer,
in up to two groups."""


def check_machine(env: Mapping[str, str], facts: Facts) -> list[Finding]:
    """The findings about this machine; empty if all is well."""
    leads = _number(env, Env.NODE_RANK, 0) == 0
    return [
        *_shared_memory(facts.shared_memory),
        *_open_files(facts.open_files, _number(env, Env.WORLD_SIZE)),
        *_checkpoints(facts.checkpoints, facts.newest_checkpoint, leads=leads),
        # Reported only by the first node, because the Kubernetes nodes of a cluster usually have the same setting.
        *_memory(together=facts.killed_together and leads and _number(env, Env.IN_PLACE_RESTARTS, 0) > 0),
    ]


def _shared_memory(seen: Directory | None) -> Iterator[Finding]:
    if seen is None:
        return
    todo = "mount an emptyDir with medium Memory there, or start the container with a larger --shm-size"
    if seen.error:
        why = os.strerror(seen.error)
        message = f"{seen.path} cannot be written to ({why}), and DataLoader workers and NCCL need it: {todo}"
        yield Finding("sharedMemory", Level.FAIL, message, retry=kind_of(seen.error) is not ConfigError)
    elif seen.total <= CONTAINER_DEFAULT:
        message = f"{seen.path} has only {_size(seen.total)}, too little for most DataLoader workers: {todo}"
        yield Finding("sharedMemory", Level.WARN, message)
    elif seen.free < CONTAINER_DEFAULT:
        message = (
            f"{seen.path} has only {_size(seen.free)} of {_size(seen.total)} left: remove what is not used there"
        )
        yield Finding("sharedMemory", Level.WARN, message)


def _open_files(limit: int | None, world_size: int) -> Iterator[Finding]:
    needed = max(FILES_AT_LEAST, FILES_OF_A_PROCESS + FILES_FOR_A_PEER * world_size)
    if limit is not None and limit < needed:
        message = (
            f"a process may open only {limit} files, but should be able to open {needed}: raise the limit (ulimit -n)"
        )
        yield Finding("openFiles", Level.WARN, message)


def _checkpoints(seen: Directory | None, newest: int | None, *, leads: bool) -> Iterator[Finding]:
    """Checks the checkpoint directory and its free space.

    If the directory cannot be used, that is a failure on rank 0's node (`leads`), which writes checkpoints. On other
    nodes it is a warning, because some programs write checkpoints on each node.
    """
    if seen is None:
        return
    needed = 2 * (newest or USUAL_CHECKPOINT)
    if seen.error:
        kind = kind_of(seen.error)
        why = f"{os.strerror(seen.error)}; {ADVICE[kind]}"
        message = f"the checkpoint directory {seen.path} cannot be used: {why}"
        yield Finding("checkpoints", Level.FAIL if leads else Level.WARN, message, retry=kind is StorageError)
    elif seen.free < needed and leads:
        sizes = "two checkpoints take" if newest else "checkpoints may take"
        message = f"{seen.path} has {_size(seen.free)} left, and {sizes} {_size(needed)}: make room, or keep fewer"
        yield Finding("checkpoints", Level.WARN, message)


def _memory(*, together: bool) -> Iterator[Finding]:
    if together:
        message = (
            "if one process of a container runs out of memory, the kernel kills all of them (memory.oom.group):"
            " the pod is replaced, and no rank is restarted in place"
        )
        yield Finding("memory", Level.OK, message)


def _number(env: Mapping[str, str], name: str, default: int = 1) -> int:
    text = env.get(name, "")
    return int(text) if text.isdecimal() else default


def _size(count: int) -> str:
    for unit, name in ((GIB, "GiB"), (MIB, "MiB"), (1 << 10, "KiB")):
        if count >= unit:
            return f"{count / unit:.3g} {name}"
    return counted(count, "byte")
