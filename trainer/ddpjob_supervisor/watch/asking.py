"""Asks a stuck rank what it is doing: the other end of its answering thread (ddpjob_rank/running/answering.py)."""

import asyncio
import contextlib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ddpjob_rank.running.answering import ASK, END, QUESTION, SIGNAL, STACK, STACKS_TOO, TOLD

from .procfs import handles, is_handling

HANDLER_SECONDS = 0.5
"""How long to wait for the signal's handler, which runs at once unless the main thread is stuck in the kernel."""

THREAD_SECONDS = 0.5
LOOK_SECONDS = 0.01


@dataclass(frozen=True, slots=True)
class Answer:
    """What a rank, or a part of it, has answered."""

    asked: bool
    """Whether it could be asked at all: it may have no handler."""
    stacks: str = ""
    told: tuple[Mapping[str, Any], ...] = field(default=())
    """What the thread has said, in its order."""

    @property
    def sequences(self) -> dict[str, int]:
        """How many collectives it has started, by group."""
        return {group: number for said in self.told for group, number in said.get("sequences", {}).items()}

    @property
    def unfinished(self) -> str | None:
        """The name of a collective that it has started and not finished: the oldest of the first such backend."""
        return next((waits["name"] for said in self.told for waits in said.get("unfinished", [])), None)


async def ask_rank(pid: int, heartbeat: Path) -> Answer:
    """Asks a rank for its stacks and its collectives; takes at most a second."""
    told = _none_told(heartbeat)
    asked = _write(heartbeat, QUESTION)
    answer = await ask_for_stacks(pid, heartbeat)
    begin = _size(heartbeat)
    if not answer.stacks:
        _none_told(heartbeat)
        _write(heartbeat, STACKS_TOO)
    await _until(lambda: END in _lines(told), THREAD_SECONDS if asked else 0.0)
    stacks = answer.stacks or _text(heartbeat, begin)
    return Answer(asked or answer.asked, stacks, tuple(line for line in _lines(told) if line != END))


async def ask_for_stacks(pid: int, heartbeat: Path) -> Answer:
    """Makes a rank, or a process that it has forked, write its stacks, if it can; takes at most half a second."""
    if SIGNAL is None or not handles(pid, SIGNAL):
        return Answer(asked=False)
    begin, number = _size(heartbeat), SIGNAL
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
    await _until(lambda: _size(heartbeat) > begin and not is_handling(pid, number), HANDLER_SECONDS)
    return Answer(asked=True, stacks=_text(heartbeat, begin))


def _none_told(heartbeat: Path) -> Path:
    """The file for the thread's answers, which does not exist yet."""
    told = Path(f"{heartbeat}{TOLD}")
    told.unlink(missing_ok=True)
    return told


def _write(heartbeat: Path, question: bytes) -> bool:
    """Whether there is anything to ask."""
    try:
        pipe = os.open(f"{heartbeat}{ASK}", os.O_WRONLY | os.O_NONBLOCK)
    except OSError:
        return False
    with contextlib.suppress(OSError):
        os.write(pipe, question)
    os.close(pipe)
    return True


def _size(heartbeat: Path) -> int:
    with contextlib.suppress(OSError):
        return Path(f"{heartbeat}{STACK}").stat().st_size
    return 0


def _text(heartbeat: Path, begin: int) -> str:
    with contextlib.suppress(OSError), Path(f"{heartbeat}{STACK}").open("rb") as file:
        file.seek(begin)
        return file.read().decode(errors="replace")
    return ""


def _lines(told: Path) -> list[dict[str, Any]]:
    """What has been answered so far, in whole lines."""
    with contextlib.suppress(OSError, ValueError):
        return [json.loads(line) for line in told.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")]
    return []


async def _until(happens: Callable[[], bool], seconds: float) -> None:
    """Waits until something has happened in files, or for this long: a stalled gang has nothing else to do."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while not happens() and loop.time() < deadline:  # noqa: ASYNC110  No event tells of another's signal mask.
        await asyncio.sleep(LOOK_SECONDS)
