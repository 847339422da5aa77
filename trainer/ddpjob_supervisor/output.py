"""Prints in threads of their own, because a supervisor must not stop if nobody reads its output.

A pipe that nobody reads is full after 64 KiB, a terminal pauses at Ctrl-S, and a file server may not answer. Lines
that cannot be printed yet are kept, up to a limit; further lines are dropped and counted.
"""

import contextlib
import io
import os
import select
import sys
import threading
import time
from collections import deque
from typing import TextIO

from ddpjob_rank.console import counted

MOST = 1000
"""How many lines may wait to be printed."""

PATIENCE_SECONDS = 0.1
"""How long a flush waits, so that the supervisor's lines keep their order among the lines of the ranks."""

LAST_SECONDS = 1.0
"""How long the last lines may take when the supervisor ends."""


class Unwaited(io.TextIOBase):
    """A text stream that replaces another one. Writing to it never blocks."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._descriptor = stream.fileno()
        self._lines: deque[bytes] = deque()
        """The lines that are not printed yet. A line stays here while it is printed."""
        self._dropped = 0
        self._behind = False
        """Whether a flush has given up waiting, and some of its lines still wait to be printed."""
        self.patience = PATIENCE_SECONDS
        self._changed = threading.Condition()
        threading.Thread(target=self._print_all, name="output", daemon=True).start()

    def fileno(self) -> int:
        """The descriptor of the stream."""
        return self._descriptor

    def write(self, text: str) -> int:
        """Keeps the text until it is printed, or drops it if too much is waiting."""
        with self._changed:
            if len(self._lines) < MOST:
                self._lines.append(text.encode(self._stream.encoding, self._stream.errors or "strict"))
                self._changed.notify_all()
            else:
                self._dropped += 1
        return len(text)

    def flush(self) -> None:
        """Waits a moment until everything is printed, unless the last flush gave up and its lines still wait."""
        if not self._behind:
            self.drain(self.patience)

    def drain(self, seconds: float) -> None:
        """Waits until everything is printed, but at most `seconds`."""
        with self._changed:
            self._behind = not self._changed.wait_for(lambda: not self._lines, seconds)

    def _print_all(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._lines)
            self._print(self._lines[0])
            with self._changed:
                self._lines.popleft()
                if self._dropped and not self._lines:
                    missing = counted(self._dropped, "line")
                    self._lines.append(f"warning: {missing} missing here: this log was not read in time\n".encode())
                    self._dropped = 0
                self._behind = self._behind and bool(self._lines)
                self._changed.notify_all()

    def _print(self, line: bytes) -> None:
        poll = select.poll()
        poll.register(self._descriptor, select.POLLOUT)
        with contextlib.suppress(OSError):  # An OSError means that nobody can read the stream any more.
            while line:
                poll.poll()  # If another process has made the descriptor non-blocking, writing does not wait.
                with contextlib.suppress(BlockingIOError):
                    line = line[os.write(self._descriptor, line) :]


def print_in_threads() -> None:
    """Makes this process print everything in threads from now on, so that it never waits for a reader."""
    for name in ("stdout", "stderr"):
        with contextlib.suppress(AttributeError, OSError):  # The stream is closed, or has no descriptor.
            setattr(sys, name, Unwaited(getattr(sys, name)))


def finish() -> None:
    """Gives the last lines a moment to be printed, including lines written later, such as the reason for the exit."""
    deadline = time.monotonic() + LAST_SECONDS
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, Unwaited):
            stream.patience = LAST_SECONDS
            stream.drain(max(0.0, deadline - time.monotonic()))
