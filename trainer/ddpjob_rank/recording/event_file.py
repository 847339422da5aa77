"""Writes events to a file in a thread, so that training does not wait for storage that hangs."""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue

from ddpjob_rank.console import counted, warn

from .event import Event
from .json_lines import JsonLines

WARNING_SECONDS = 5.0
"""If events have been unwritten for longer than this, storage is slow, and the machine is not just busy."""

MOST = 10_000
"""How many events may wait to be written. They take a few MB."""


class EventFile:
    """Writes events in order. An event for which `add` has waited stays in the file even if the process is killed."""

    def __init__(
        self, path: Path, make: Callable[[], JsonLines], *, timeout_seconds: float, closing_seconds: float
    ) -> None:
        """The file is created for the first event, if it does not exist yet.

        Args:
            path: The file's path, for messages.
            make: Opens the file. Called in the thread.
            timeout_seconds: How long `add` waits for its event to be written, which usually takes microseconds. If an
                event takes longer, `add` does not wait at all while any event is unwritten.
            closing_seconds: How long `close` waits for events that are not written yet.
        """
        self._path, self._make, self._timeout_seconds, self._closing_seconds = (
            path,
            make,
            timeout_seconds,
            closing_seconds,
        )
        self._events: SimpleQueue[Event | None] = SimpleQueue()
        self._idle = threading.Event()
        self._idle.set()
        self._broken = self._warned = False
        self._lost = 0
        self._since = 0.0
        """Since when there have been unwritten events, on the monotonic clock."""
        # A daemon thread, because otherwise storage that hangs would keep the process from ending.
        self._thread = threading.Thread(target=self._run, name="metrics", daemon=True)
        self._thread.start()

    def add(self, event: Event) -> None:
        """Queues an event, and waits a short time for it to be written."""
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
            self._idle.wait(self._timeout_seconds)

    def close(self) -> None:
        """Waits for queued events, for at most `closing_seconds`, and warns if some are lost."""
        self._events.put(None)
        self._thread.join(self._closing_seconds)
        # The event that is being written is no longer in the queue. The None at the end of the queue is counted
        # instead.
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
