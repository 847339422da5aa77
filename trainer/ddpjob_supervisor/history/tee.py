"""Passes on what this process and its children print, and hears it. A thread does nothing else.

If the log is read slowly, who prints has to wait, as without this. It must be begun before the children are started.
"""

import contextlib
import os
import select
import threading
import time
from collections.abc import Callable

CHUNK_BYTES = 1 << 16
FEW_BYTES, PAUSE_SECONDS = 1 << 12, 0.05
"""If so few bytes come sooner than this after the former ones, the thread pauses for so long: it passes on several
short lines at once. The pipe has room for them."""
PRINTED = (1, 2)
"""The descriptors of stdout and stderr."""
SLOW_SECONDS, LOOK_SECONDS = 30.0, 0.02
"""How long the end waits for a log that is read slowly, and how often it looks for that."""


def is_wanted() -> bool:
    """Whether stdout and stderr can be heard. A terminal stays with its programs, which draw progress bars there."""
    with contextlib.suppress(OSError):  # One of them is closed.
        for descriptor in PRINTED:
            os.fstat(descriptor)
        return not any(map(os.isatty, PRINTED))
    return False


class Tee:
    """Pipes in front of stdout and stderr."""

    def __init__(self, hear: Callable[[int, bytes], None]) -> None:
        """`hear` is called in the thread, with a stream's number and what was printed there. It must not wait."""
        self._hear = hear
        self._originals = [os.dup(descriptor) for descriptor in PRINTED]
        self._sources: dict[int, int] = {}
        """The descriptor where each pipe is passed on, by the descriptor from which it is read."""
        self._busy = False
        """Whether something that was printed is being passed on."""
        # One pipe for both if they lead to the same place: this keeps the order of what is printed.
        same = os.path.sameopenfile(*PRINTED)
        for descriptors in [PRINTED] if same else [PRINTED[:1], PRINTED[1:]]:
            reading, writing = os.pipe()
            self._sources[reading] = self._originals[descriptors[0] - 1]
            for descriptor in descriptors:
                os.dup2(writing, descriptor)
            os.close(writing)
        self._thread = threading.Thread(target=self._pass_on, name="tee", daemon=True)
        self._thread.start()

    def close(self, seconds: float) -> None:
        """Restores stdout and stderr, and passes on what is left, although the log may be read slowly.

        A process that was left behind may keep a pipe open. If it prints nothing, this waits only `seconds` for it.
        """
        for original, descriptor in zip(self._originals, PRINTED, strict=True):
            os.dup2(original, descriptor)
        self._thread.join(seconds)
        end = time.monotonic() + SLOW_SECONDS
        while self._has_more() and time.monotonic() < end:
            self._thread.join(LOOK_SECONDS)

    def _has_more(self) -> bool:
        if not self._thread.is_alive():
            return False
        poll = select.poll()
        for source in self._sources:
            poll.register(source, select.POLLIN)
        # In this order: the thread is busy before it empties a pipe.
        return any(event & select.POLLIN for _, event in poll.poll(0)) or self._busy

    def _pass_on(self) -> None:
        poll = select.poll()
        for source in self._sources:
            poll.register(source, select.POLLIN)
        left = set(self._sources)
        last = -PAUSE_SECONDS
        while left:
            self._busy = False
            found = poll.poll()
            self._busy = True
            most = 0
            for source, _ in found:
                chunk = os.read(source, CHUNK_BYTES)
                most = max(most, len(chunk))
                if chunk:
                    _write(self._sources[source], chunk)
                    self._hear(source, chunk)
                else:
                    poll.unregister(source)
                    left.discard(source)
            before, last = last, time.monotonic()
            if 0 < most < FEW_BYTES and last - before < PAUSE_SECONDS:
                time.sleep(PAUSE_SECONDS)
                last = time.monotonic()


def _write(descriptor: int, chunk: bytes) -> None:
    with contextlib.suppress(OSError):  # Nobody reads any more. Who prints goes on, and the history has it.
        while chunk:
            try:
                chunk = chunk[os.write(descriptor, chunk) :]
            except BlockingIOError:  # Another process has made the descriptor non-blocking.
                poll = select.poll()
                poll.register(descriptor, select.POLLOUT)
                poll.poll()
