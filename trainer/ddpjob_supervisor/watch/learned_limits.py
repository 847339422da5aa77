"""Keeps what a job's stalls and pauses have taught, in a file beside the stacks, for the pods that come later."""

import asyncio
import contextlib
import dataclasses
import json
import os
from collections.abc import Mapping
from pathlib import Path

from ddpjob_rank.limits import Learned
from ddpjob_rank.machine.regular_file import NotRegularError, read_regular

from .evidence import lasting_directories, write_file
from .threads import in_thread

NAME = "patience.json"
LARGEST_BYTES = 4096
SECONDS = 2.0
"""How long a file server may take: without an answer the job begins with the usual limits."""
MOST_STALLS, LONGEST_SECONDS = 1000, 86_400.0


async def recall(uid: str) -> Learned:
    """What the job with this uid has learned; nothing if it is not known."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(SECONDS):
            return await in_thread(_read, _file(os.environ), uid)
    return Learned()


async def keep(learned: Learned, uid: str) -> None:
    """Writes what the job with this uid has learned."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(SECONDS):
            await in_thread(_write, _file(os.environ), learned, uid)


def _file(env: Mapping[str, str]) -> Path | None:
    directory = next(lasting_directories(env), None)
    return None if directory is None else directory / NAME


def _read(file: Path | None, uid: str) -> Learned:
    with contextlib.suppress(OSError, NotRegularError, ValueError, KeyError, TypeError, RecursionError):
        if file is not None and not file.parent.is_symlink():
            known = json.loads(read_regular(file, LARGEST_BYTES))
            stalls, longest = int(known["stalls"]), float(known["longest"])
            if known["uid"] == uid and 0 <= stalls <= MOST_STALLS and 0 <= longest <= LONGEST_SECONDS:
                return Learned(stalls, longest)
    return Learned()


def _write(file: Path | None, learned: Learned, uid: str) -> None:
    with contextlib.suppress(OSError):
        if file is not None and not file.parent.is_symlink():
            write_file(file, json.dumps({"uid": uid, **dataclasses.asdict(learned)}).encode())
