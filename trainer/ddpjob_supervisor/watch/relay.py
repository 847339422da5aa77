"""Passes on what a rank writes to stderr, and hears it: some failures are told nowhere else.

Or it hears what a rank writes for its supervisor alone.

A thread does it, which waits in reads and writes alone: whoever reads the log slowly makes the rank wait, as without
a relay, and not the supervisor.
"""

import asyncio
import contextlib
import os
import select
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Self

from ddpjob_rank.running.stderr import SUFFIX

STDERR = 2
CHUNK_BYTES = 1 << 16
WHOLE_BYTES = 4096
"""POSIX's PIPE_BUF on Linux: a write of at most so many bytes is not mixed with another process's."""
LONGEST_LINE = 4096
"""In characters; what is longer is heard in parts."""

LAST_WORDS_SECONDS = 0.25
"""How long to wait for a rank's last words once it has ended. They are in the pipe by then, and usually read; what
it has started may hold the pipe open."""


class Relay:
    """One rank's stderr, or another file of its, from before its start until it has ended."""

    def __init__(
        self, heartbeat: str, hear: Callable[[str], None], suffix: str = SUFFIX, *, shown: bool = True
    ) -> None:
        """`hear` is called with each line, in a thread; `shown`: they are passed on.

        Raises:
            OSError: The pipe cannot be made.
        """
        self.path = Path(f"{heartbeat}{suffix}")
        self._hear, self._shown = hear, shown
        self._rest = ""
        self.path.unlink(missing_ok=True)
        os.mkfifo(self.path, 0o600)
        # Without waiting for the rank: it finds a reader, or no pipe.
        self._pipe = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        self._loop = asyncio.get_running_loop()
        self._over = asyncio.Event()
        threading.Thread(target=self._pass_on, name="relay", daemon=True).start()

    @classmethod
    def of(cls, heartbeat: str | None, hear: Callable[[str], None]) -> Self | None:
        """A relay for the rank with this heartbeat file; None if its stderr is to stay what it is.

        On a terminal it stays: programs draw there, and ask how wide it is.
        """
        if heartbeat is None or sys.platform != "linux" or os.isatty(STDERR):
            return None
        with contextlib.suppress(OSError):
            return cls(heartbeat, hear)
        return None

    @classmethod
    def aside(cls, heartbeat: str, hear: Callable[[str], None], suffix: str) -> Self | None:
        """One for a file that nobody else reads; None if it cannot be made."""
        with contextlib.suppress(OSError):
            return cls(heartbeat, hear, suffix, shown=False) if sys.platform == "linux" else None
        return None

    async def finish(self, *, waits: bool = True) -> None:
        """The rank has ended; waits for its last words, or leaves it to the thread to pass them on."""
        # One that has never written has not opened it either, so the end is shown.
        with contextlib.suppress(OSError):
            os.close(os.open(self.path, os.O_WRONLY | os.O_NONBLOCK))
        with contextlib.suppress(OSError):
            self.path.unlink()
        if not waits:
            return
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._over.wait(), LAST_WORDS_SECONDS)

    def _pass_on(self) -> None:
        for chunk in _chunks(self._pipe):
            if self._shown:
                write(chunk)
            self._listen(chunk.decode(errors="replace"))
        if self._rest:
            self._hear(self._rest)
        os.close(self._pipe)
        with contextlib.suppress(RuntimeError):  # Nobody waits any more.
            self._loop.call_soon_threadsafe(self._over.set)

    def _listen(self, text: str) -> None:
        # A progress bar goes back to the start of its line, and does not end it.
        *lines, self._rest = (self._rest + text).replace("\r", "\n").split("\n")
        for line in lines:
            self._hear(line[:LONGEST_LINE])
        if len(self._rest) > LONGEST_LINE:
            self._hear(self._rest)
            self._rest = ""


def _chunks(pipe: int) -> Iterator[bytes]:
    """What comes through the pipe until all who could write into it have closed it."""
    poll = select.poll()
    poll.register(pipe, select.POLLIN)
    while True:
        poll.poll()  # Before anybody has opened the pipe, a read would return its end.
        try:
            chunk = os.read(pipe, CHUNK_BYTES)
        except BlockingIOError:
            continue
        if not chunk:
            return
        yield chunk


def write(chunk: bytes) -> None:
    """Writes to the log, in parts that stay whole, and are whole lines if possible."""
    with contextlib.suppress(OSError):  # Nobody reads it.
        while chunk:
            end = len(chunk) if len(chunk) <= WHOLE_BYTES else chunk.rfind(b"\n", 0, WHOLE_BYTES) + 1 or WHOLE_BYTES
            part, chunk = chunk[:end], chunk[end:]
            while part:
                part = part[os.write(STDERR, part) :]
