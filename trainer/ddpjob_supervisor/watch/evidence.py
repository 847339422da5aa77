"""Keeps the evidence of stalls in files beside the checkpoints, so that it outlives the pod."""

import asyncio
import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from ddpjob_rank.console import warn
from ddpjob_rank.environment import Env
from ddpjob_rank.machine.storage import directory_of

from .threads import in_thread

ATTEMPTS_KEPT = 10
WRITE_SECONDS = 0.25


async def keep(story: str, attempt: int, rank: int) -> None:
    """Writes what a rank was doing to `attempt-N/rank-R.txt`, and logs the path."""
    await _keep(story.encode(errors="replace"), attempt, f"rank-{rank}.txt", f"the stacks of rank {rank}")


async def keep_ras(said: str, attempt: int) -> None:
    """Writes the answer of NCCL's RAS to `attempt-N/ras.txt`, and logs the path."""
    await _keep(f"{said}\n".encode(), attempt, "ras.txt", "the report of NCCL's RAS")


async def keep_recording(dump: bytes, attempt: int, rank: int) -> None:
    """Writes a dump of PyTorch's flight recorder to `attempt-N/trace-R`, the name that PyTorch's analyzer expects."""
    await _keep(dump, attempt, f"trace-{rank}", f"the flight recorder's dump of rank {rank}")


async def _keep(content: bytes, attempt: int, name: str, what: str) -> None:
    """Writes a file, but does not wait long for it, because the file server may be the reason why the gang hangs."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(WRITE_SECONDS):
            await in_thread(_write, content, attempt, name, what)


def directories(env: Mapping[str, str]) -> Iterator[Path]:
    """The directories in which evidence can be kept, the best first."""
    yield from lasting_directories(env)
    with contextlib.suppress(OSError):
        yield _own(tempfile.gettempdir())


def lasting_directories(env: Mapping[str, str]) -> Iterator[Path]:
    """Those directories for evidence that outlive the pod."""
    if checkpoints := directory_of(env.get(Env.CHECKPOINT_DIR)):
        yield checkpoints / "stalls"
    if run := env.get(Env.RUN_DIR):
        yield Path(run) / "stalls"


@cache
def _own(parent: str) -> Path:
    """A directory that only this supervisor uses, because other users of the machine may write to the same parent."""
    return Path(tempfile.mkdtemp(prefix="ddpjob-stalls-", dir=parent))


def _write(content: bytes, attempt: int, name: str, what: str) -> None:
    for directory in directories(os.environ):
        # Skipped, because _drop_old would remove files in the directory to which the link points.
        if directory.is_symlink():
            continue
        file = directory / f"attempt-{attempt}" / name
        try:
            write_file(file, content)
        except OSError:
            continue
        warn(f"saved {what} to {file}")
        _drop_old(directory)
        return


def write_file(file: Path, content: bytes) -> None:
    """Writes a whole file, in a directory that may not exist yet. If the file is a link, replaces the link.

    Raises:
        OSError: The file cannot be written.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    new = file.with_name(f"{file.name}.new")
    new.unlink(missing_ok=True)
    new.write_bytes(content)
    new.replace(file)


def _drop_old(directory: Path) -> None:
    """Removes the evidence of all but the last attempts that stalled. Other nodes may do so at the same time."""
    with contextlib.suppress(OSError):
        attempts = sorted(directory.glob("attempt-*"), key=lambda attempt: attempt.stat().st_mtime)
        for old in attempts[:-ATTEMPTS_KEPT]:
            shutil.rmtree(old, ignore_errors=True)
