"""Asks a stuck rank what it is doing. The code that answers in the rank is ddpjob_rank/running/answering.py."""

import asyncio
import contextlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ddpjob_rank.bounded_json import parsed
from ddpjob_rank.running.answering import ASK, END, QUESTION, SIGNAL, STACK, STACKS_TOO, TOLD

from .procfs import handles, is_handling

HANDLER_SECONDS = 0.5
"""How long to wait for the signal handler, which runs immediately unless the main thread is stuck in the kernel."""

THREAD_SECONDS = 0.5
LOOK_SECONDS = 0.01


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of a rank or of one of its child processes."""

    asked: bool
    """Whether the process could be asked. It may have neither a signal handler nor a thread that answers."""
    stacks: str = ""
    told: tuple[Mapping[str, Any], ...] = field(default=())
    """The JSON objects that the answering thread has written, in order."""

    @property
    def sequences(self) -> dict[str, int]:
        """The number of collectives that the rank has started, by group."""
        return {group: number for part in self.told for group, number in part.get("sequences", {}).items()}

    @property
    def raised(self) -> str | None:
        """The exception that the main thread is handling."""
        return next((part["raised"] for part in self.told if "raised" in part), None)

    @property
    def fallen(self) -> str | None:
        """The last thread that ended because of an exception, and the exception."""
        return next((part["fallen"] for part in self.told if "fallen" in part), None)

    @property
    def expects(self) -> str | None:
        """Why the process group that the rank is creating can never be complete."""
        return next((part["expects"] for part in self.told if "expects" in part), None)

    @property
    def unfinished(self) -> str | None:
        """The name of the oldest unfinished collective, from the first backend that has any."""
        return next((waits["name"] for part in self.told for waits in part.get("unfinished", [])), None)


async def ask_rank(pid: int, heartbeat: Path) -> Answer:
    """Asks a rank for its stacks and its collectives. Takes at most a second."""
    reply = _new_reply(heartbeat)
    pipe = Path(f"{heartbeat}{ASK}")
    asked = write_to(pipe, QUESTION)
    answer = await ask_for_stacks(pid, heartbeat)
    begin = _size(heartbeat)
    if not answer.stacks:
        _new_reply(heartbeat)
        write_to(pipe, STACKS_TOO)
    await _until(lambda: END in _lines(reply), THREAD_SECONDS if asked else 0.0)
    stacks = answer.stacks or _text(heartbeat, begin)
    return Answer(asked or answer.asked, stacks, tuple(line for line in _lines(reply) if line != END))


async def ask_for_stacks(pid: int, heartbeat: Path) -> Answer:
    """Asks a rank, or a forked child of a rank, for its stacks if it has the handler. Takes at most 0.5 seconds."""
    if SIGNAL is None or not handles(pid, SIGNAL):
        return Answer(asked=False)
    begin, number = _size(heartbeat), SIGNAL
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
    await _until(lambda: _size(heartbeat) > begin and not is_handling(pid, number), HANDLER_SECONDS)
    return Answer(asked=True, stacks=_text(heartbeat, begin))


def _new_reply(heartbeat: Path) -> Path:
    """Deletes an old answer, and returns the path for the thread's new answer."""
    reply = Path(f"{heartbeat}{TOLD}")
    reply.unlink(missing_ok=True)
    return reply


def write_to(pipe: Path, question: bytes) -> bool:
    """Writes a question into a pipe of a rank. Returns whether anything reads the pipe."""
    try:
        end = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
    except OSError:
        return False
    with contextlib.suppress(OSError):
        os.write(end, question)
    os.close(end)
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


def _lines(reply: Path) -> list[dict[str, Any]]:
    """The complete lines of the answer so far."""
    with contextlib.suppress(OSError, ValueError):
        return [parsed(line) for line in reply.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")]
    return []


async def _until(happens: Callable[[], bool], seconds: float) -> None:
    """Waits until `happens` returns true, but at most `seconds`. Polling is cheap enough for a stalled gang."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while not happens() and loop.time() < deadline:  # noqa: ASYNC110  (no event reports another's signal mask)
        await asyncio.sleep(LOOK_SECONDS)
