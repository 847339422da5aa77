"""Events on their way to a file, written by a thread: nothing waits for storage that hangs."""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue

from ddpjob_rank.console import counted, warn

from .event import Event
from .json_lines import JsonLines

WARNING_SECONDS = 5.0
"""After so long without having written all, it is the storage, and not a machine that is busy."""

MOST = 10_000
"""How many may wait: a few MB."""


class EventFile:
    """Takes events in their order; one that `add` has waited for is in the file whatever becomes of the process."""

    def __init__(self, path: Path, make: Callable[[], JsonLines], *, patience: float, closing: float) -> None:
        """The file is made for the first event, if it is not there yet.

        Args:
            path: The file, for people.
            make: Opens it, in the thread.
            patience: Seconds to wait for an event to be written, which usually takes microseconds. Once it took
                longer, no other is waited for until all have been written.
            closing: Seconds to wait in the end for those that are not written yet.
        """
        self._path, self._make, self._patience, self._closing = path, make, patience, closing
        self._events: SimpleQueue[Event | None] = SimpleQueue()
        self._idle = threading.Event()
        self._idle.set()
        self._broken = self._warned = False
        self._lost = 0
        self._since = 0.0
        """Since when something has not been written yet."""
        # A daemon: otherwise storage that hangs would keep the process from ending.
        self._thread = threading.Thread(target=self._run, name="metrics", daemon=True)
        self._thread.start()

    def add(self, event: Event) -> None:
        """Hands an event over, and waits a little."""
        if self._broken:
            return
        behind = not self._idle.is_set()
        if behind and not self._warned and time.monotonic() - self._since > WARNING_SECONDS:
            self._warned = True
            warn(f"writing metrics takes more than {WARNING_SECONDS:.0f} s; training does not wait for it")
        if behind and self._events.qsize() >= MOST:
            self._lost += 1
            return
        self._idle.clear()
        self._events.put(event)
        if not behind:
            self._since = time.monotonic()
            self._idle.wait(self._patience)

    def close(self) -> None:
        """Nothing more will come."""
        self._events.put(None)
        self._thread.join(self._closing)
        # None, at the end of the queue, stands for the one that is being written.
        if not self._broken and (lost := self._lost + self._events.qsize()):
            warn(f"{counted(lost, 'event')} of the metrics could not be written in time")

    def _run(self) -> None:
        lines: JsonLines | None = None
        try:
            while event := self._events.get():
                lines = lines or self._make()
                lines.write(event)
                if self._events.empty():
                    self._idle.set()
        except OSError as error:
            warn(f"{self._path} is no longer written: {error.strerror}. Training goes on without it")
            self._broken = True
            self._idle.set()
        if lines is not None:
            lines.close()
