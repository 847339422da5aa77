"""Holds the copy of the newest checkpoint that rank 0 has handed over, and gives it to rank 0 of the next attempt.

Only that attempt gets the copy: if rank 0 was on another node in between, or did not ask, there may be a newer
checkpoint.
"""

import asyncio
import os
import socket
import sys
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from ddpjob_rank.console import warn
from ddpjob_rank.reporting import copy_handover


@dataclass(frozen=True, slots=True)
class HeldCopy:
    """The files of a copy, by their descriptors."""

    attempt: int
    """The last attempt that handed over the copy or received it."""
    location: bytes
    files: tuple[int, ...]


class CopyHolder:
    """Holds at most one copy, and answers the messages that `ddpjob_rank.reporting.copy_handover` sends."""

    def __init__(self, path: Path) -> None:
        """`path` is the path of the socket, in a directory that no other user may enter."""
        self._held: HeldCopy | None = None
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        try:
            if sys.platform == "linux":  # Only Linux has files in memory.
                self._socket.bind(str(path))
        except OSError as error:
            warn(f"no checkpoint is copied into this node's memory: {path}: {error}")

    def __enter__(self) -> Self:
        asyncio.get_running_loop().add_reader(self._socket, self._read)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.get_running_loop().remove_reader(self._socket)
        self._socket.close()
        self.drop()

    @property
    def holds(self) -> bool:
        """Whether there is a copy."""
        return self._held is not None

    def drop(self) -> None:
        """Closes the copy, if there is one."""
        if self._held is not None:
            _close(self._held.files)
            self._held = None

    def _read(self) -> None:
        with suppress(BlockingIOError):
            while True:
                said, files = copy_handover.received(self._socket)
                if not self._handles(said, files):
                    _close(files)

    def _handles(self, said: bytes, files: tuple[int, ...]) -> bool:
        """Handles a message; returns whether the files are kept."""
        match said.split(b" ", 2), files:
            case [copy_handover.KEEP, attempt, location], (_, _) if attempt.isdigit():
                self.drop()
                self._held = HeldCopy(int(attempt), location, files)
                return True
            case [copy_handover.ASK, attempt, _], (reply,) if attempt.isdigit():
                self._give(int(attempt), reply)
            case [copy_handover.DROP, *_], ():
                self.drop()
        return False

    def _give(self, attempt: int, reply: int) -> None:
        held = self._held
        if held is None or held.attempt not in {attempt - 1, attempt}:
            return
        with suppress(OSError), socket.socket(fileno=os.dup(reply)) as answer:
            answer.setblocking(False)
            socket.send_fds(answer, [held.location], held.files)
            self._held = replace(held, attempt=attempt)


def _close(files: Iterable[int]) -> None:
    for file in files:
        os.close(file)
