"""Events on their way to the files, written by a thread: training does not wait for storage that hangs."""

import threading
import time
from collections.abc import Callable
from queue import SimpleQueue

from ddpjob_rank.console import counted, warn
from ddpjob_rank.recording.event import Event

PATIENCE_SECONDS = 0.1
"""How long training waits for an event to be written, which usually takes microseconds. Once it took longer, no other
is waited for until all have been written."""

WARNING_SECONDS = 5.0
"""After so long without having written all, it is the storage, and not a machine that is busy."""

MOST = 10_000
"""How many may wait: a few MB."""

CLOSING_SECONDS = 5.0
"""How long the end of a run waits for those that still do."""


class EventQueue:
    """Takes events in their order; one that `add` has waited for is in its file whatever becomes of the process."""

    def __init__(self, write: Callable[[Event], None]) -> None:
        self._write = write
        self._events: SimpleQueue[Event | None] = SimpleQueue()
        self._idle = threading.Event()
        self._idle.set()
        self._lost = 0
        self._since = 0.0
        """Since when something has not been written yet."""
        self._warned = False
        # A daemon: otherwise storage that hangs would keep the process from ending.
        self._thread = threading.Thread(target=self._run, name="metrics", daemon=True)
        self._thread.start()

    def add(self, event: Event) -> None:
        """Hands an event over, and waits a little."""
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
            self._idle.wait(PATIENCE_SECONDS)

    def close(self) -> bool:
        """Nothing more will come; returns whether nothing more is being written."""
        self._events.put(None)
        self._thread.join(CLOSING_SECONDS)
        hangs = self._thread.is_alive()
        # None, at the end of the queue, stands for the one that is being written.
        if lost := self._lost + self._events.qsize():
            warn(f"{counted(lost, 'event')} of the metrics could not be written in time")
        return not hangs

    def _run(self) -> None:
        while event := self._events.get():
            self._write(event)
            if self._events.empty():
                self._idle.set()
