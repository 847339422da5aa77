"""Keeps the limits learned from a job's steps and stalls in a file beside the evidence, for pods that start later."""

import asyncio
import contextlib
import dataclasses
import hashlib
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from ddpjob_rank.bounded_json import parsed
from ddpjob_rank.limits import Learned
from ddpjob_rank.machine.regular_file import NotRegularError, read_regular

from .evidence import lasting_directories, write_file
from .threads import in_thread

NAME = "patience.json"
LARGEST_BYTES = 4096
SECONDS = 2.0
"""How long a file server may take to answer. Without an answer, the job begins with the default limits."""
MOST_STALLS, LONGEST_SECONDS = 1000, 86_400.0


def kind_of_start(image: str, processes: Sequence[int], method: str, program: Sequence[str]) -> str:
    """A digest of everything that the time of a first step depends on.

    Args:
        image: The container's image; empty if there is none.
        processes: The number of nodes, and of processes on each.
        method: How ranks are started.
        program: The command line of the program.
    """
    parts = [image, *processes, method, *program, sys.version]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


async def recall(uid: str, start: str) -> Learned:
    """Reads what the job with this uid has learned.

    The limit for the first step is used only if `start` is the same.
    """
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(SECONDS):
            return await in_thread(_read, _file(os.environ), uid, start)
    return Learned()


async def keep(learned: Learned, uid: str, start: str) -> None:
    """Writes what the job with this uid has learned from starts of the kind `start`."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(SECONDS):
            await in_thread(_write, _file(os.environ), learned, uid, start)


def _file(env: Mapping[str, str]) -> Path | None:
    directory = next(lasting_directories(env), None)
    return None if directory is None else directory / NAME


def _read(file: Path | None, uid: str, start: str) -> Learned:
    with contextlib.suppress(OSError, NotRegularError, ValueError, KeyError, TypeError):
        if file is not None and not file.parent.is_symlink():
            known = parsed(read_regular(file, LARGEST_BYTES))
            stalls, longest = int(known["stalls"]), float(known["longest"])
            first_step = float(known["first_step"]) if known.get("start") == start else 0.0
            seconds = (longest, first_step)
            if (
                known["uid"] == uid
                and 0 <= stalls <= MOST_STALLS
                and all(0 <= one <= LONGEST_SECONDS for one in seconds)
            ):
                return Learned(stalls, longest, first_step)
    return Learned()


def _write(file: Path | None, learned: Learned, uid: str, start: str) -> None:
    with contextlib.suppress(OSError):
        if file is not None and not file.parent.is_symlink():
            write_file(file, json.dumps({"uid": uid, "start": start, **dataclasses.asdict(learned)}).encode())
