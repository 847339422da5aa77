"""Reads a rank's stderr through a pipe and passes it on, because some failures are reported only there.

A relay can also read a file that a rank writes only for its supervisor.

The work is done in a thread that only reads and writes. If the log is read slowly, the rank has to wait, as it would
without a relay, but the supervisor does not.
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
"""PIPE_BUF on Linux: a write of at most this many bytes is not mixed with writes of other processes."""
LONGEST_LINE = 4096
"""The longest line in characters. Longer lines are split."""

LAST_WORDS_SECONDS = 0.25
"""How long to wait for the end of the pipe after a rank has ended. The rank's last lines are in the pipe by then, and
usually have been read, but processes that the rank has started may keep the pipe open."""


class Relay:
    """Reads one rank's stderr, or another file of the rank, from before the rank starts until it has ended."""

    def __init__(
        self, heartbeat: str, hear: Callable[[str], None], suffix: str = SUFFIX, *, shown: bool = True
    ) -> None:
        """`hear` is called with each line, in a thread. If `shown`, the content is also passed on to stderr.

        Raises:
            OSError: The pipe cannot be created.
        """
        self.path = Path(f"{heartbeat}{suffix}")
        self._hear, self._shown = hear, shown
        self._rest = ""
        self.path.unlink(missing_ok=True)
        os.mkfifo(self.path, 0o600)
        # Opened before the rank starts, and without waiting for a writer, so that the rank always finds a reader.
        self._pipe = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        # Kept open until the rank has ended. Otherwise the reader would end when the rank's first process closes the
        # pipe, and the next process would wait in open(2) forever.
        self._kept_open: int | None = os.open(self.path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        self._loop = asyncio.get_running_loop()
        self._over = asyncio.Event()
        threading.Thread(target=self._pass_on, name="relay", daemon=True).start()

    @classmethod
    def of(cls, heartbeat: str | None, hear: Callable[[str], None]) -> Self | None:
        """A relay for the stderr of the rank with this heartbeat file; None if the rank must keep its own stderr.

        A rank keeps a terminal, because programs draw progress bars there and query the terminal's width.
        """
        if heartbeat is None or sys.platform != "linux" or os.isatty(STDERR):
            return None
        with contextlib.suppress(OSError):
            return cls(heartbeat, hear)
        return None

    @classmethod
    def aside(cls, heartbeat: str, hear: Callable[[str], None], suffix: str) -> Self | None:
        """A relay for a file that only the supervisor reads; None if it cannot be created."""
        with contextlib.suppress(OSError):
            return cls(heartbeat, hear, suffix, shown=False) if sys.platform == "linux" else None
        return None

    async def finish(self, *, waits: bool = True) -> None:
        """Call this when the rank has ended. With `waits`, waits a moment until the rank's last lines are read."""
        if self._kept_open is not None:
            os.close(self._kept_open)
            self._kept_open = None
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
        with contextlib.suppress(RuntimeError):  # The event loop is closed, so nobody waits.
            self._loop.call_soon_threadsafe(self._over.set)

    def _listen(self, text: str) -> None:
        # A progress bar goes back to the start of its line instead of ending the line.
        *lines, self._rest = (self._rest + text).replace("\r", "\n").split("\n")
        for line in lines:
            self._hear(line[:LONGEST_LINE])
        if len(self._rest) > LONGEST_LINE:
            self._hear(self._rest)
            self._rest = ""


def _chunks(pipe: int) -> Iterator[bytes]:
    """The content of the pipe, until all writers have closed it."""
    poll = select.poll()
    poll.register(pipe, select.POLLIN)
    while True:
        poll.poll()
        try:
            chunk = os.read(pipe, CHUNK_BYTES)
        except BlockingIOError:
            continue
        if not chunk:
            return
        yield chunk


def write(chunk: bytes) -> None:
    """Writes to stderr, in parts that are not mixed with other processes' output, each a whole line if possible."""
    with contextlib.suppress(OSError):  # Writing fails if nobody reads stderr any more.
        while chunk:
            end = len(chunk) if len(chunk) <= WHOLE_BYTES else chunk.rfind(b"\n", 0, WHOLE_BYTES) + 1 or WHOLE_BYTES
            part, chunk = chunk[:end], chunk[end:]
            while part:
                part = part[os.write(STDERR, part) :]
