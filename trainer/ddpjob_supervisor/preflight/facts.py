"""Inspects this machine: shared memory, the limit on open files, the checkpoint directory, and the cgroup."""

import os
import resource
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile

from ddpjob_rank.environment import Env
from ddpjob_rank.machine import memory
from ddpjob_rank.machine.storage import directory_of
from ddpjob_rank.manifests.manifest import checkpoints_in, read_manifest
from ddpjob_rank.manifests.unusable import UnusableError

from ddpjob_supervisor.node import open_files

SHARED_MEMORY = "/dev/shm"  # noqa: S108  DataLoader workers and NCCL use no other directory for shared memory.

PAGE = b"\0" * 4096


@dataclass(frozen=True, slots=True)
class Directory:
    """A directory that must be writable."""

    path: str
    error: int = 0
    """The errno of the first step that failed (creating the directory, writing a page into it); 0 if none failed."""
    total: int = 0
    """The size of its file system, in bytes."""
    free: int = 0
    """How many bytes of the file system this user may still use."""


@dataclass(frozen=True, slots=True)
class Facts:
    """The results of the inspection. None if this machine or this run has no such thing."""

    shared_memory: Directory | None = None
    open_files: int | None = None
    """How many files a rank may have open."""
    checkpoints: Directory | None = None
    newest_checkpoint: int | None = None
    """The size, in bytes, of the newest checkpoint that `ddpjob-train` has written to the checkpoint directory."""
    killed_together: bool = False
    """Whether the kernel kills all processes of the container if one of them runs out of memory."""


def inspect_machine(env: Mapping[str, str]) -> Facts:
    """Inspects this machine. This may take as long as the checkpoints' file system takes to answer."""
    checkpoints = directory_of(env.get(Env.CHECKPOINT_DIR))
    return Facts(
        shared_memory=directory(Path(SHARED_MEMORY)) if sys.platform == "linux" else None,
        open_files=_open_files(),
        checkpoints=directory(checkpoints, make=True) if checkpoints else None,
        newest_checkpoint=_newest(checkpoints) if checkpoints else None,
        killed_together=memory.kills_together(),
    )


def directory(path: Path, *, make: bool = False) -> Directory:
    """Tests whether a directory is writable, and leaves no file there.

    With `make`, creates it first if it is missing.
    """
    error, total, free = 0, 0, 0
    try:
        if make:
            path.mkdir(parents=True, exist_ok=True)
        space = os.statvfs(path)
        total, free = space.f_blocks * space.f_frsize, space.f_bavail * space.f_frsize
        with TemporaryFile(dir=path, buffering=0) as file:
            file.write(PAGE)
    except OSError as failed:
        error = failed.errno or 0
    return Directory(str(path), error, total, free)


def _open_files() -> int | None:
    # These are the limits from before this process raised its own, and ranks run with them.
    soft, _ = open_files.FOUND
    return None if soft == resource.RLIM_INFINITY else soft


def _newest(checkpoints: Path) -> int | None:
    """The size of the newest checkpoint of `ddpjob-train`, from its manifest; None if no manifest can be read."""
    manifests = []
    with suppress(OSError):  # The path is not necessarily a directory.
        for path in checkpoints_in(checkpoints):
            with suppress(UnusableError):
                manifests.append(read_manifest(path))
    return max(manifests, key=lambda manifest: manifest.order).size if manifests else None
