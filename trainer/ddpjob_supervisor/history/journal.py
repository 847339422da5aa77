"""Collects what a node prints and what happens there, and saves it in a thread, so that nothing waits for storage."""

import contextlib
import re
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from ddpjob_rank.console import warn
from ddpjob_rank.machine.storage import shown
from ddpjob_rank.recording.event import Event
from ddpjob_rank.recording.json_lines import fields_of

from .printed_lines import PrintedLines
from .secret_values import SecretValues
from .segments import FAILED, FOLDER, RESULT, STOPPED, SUCCEEDED, HistoryWriter, Series, line_of
from .targets import ERRORS, Target

LOG, EVENTS = "log", "events"
LOG_BYTES, EVENT_BYTES = 32 << 20, 8 << 20
"""How much of each kind a process keeps."""
WAITING_BYTES = 4 << 20
"""How much may wait to be saved. What comes then is lost, and counted."""
ITEM_BYTES = 256
"""Memory that a small item of the queue takes."""
LINE_BYTES = 29
"""What the record of a line takes beside its text. Short lines take more of a processor, too."""
PROCESSES = 16
"""How many processes of a node keep their folders: the first, and the newest."""

SECONDS, SECONDS_AT_MOST = 1.0, 60.0
"""How long a line may wait to be saved, and the longest pause between two saves."""
SHARE = 10
"""A save that has taken long is followed by a pause this many times as long, so that a slow server is asked less."""

BEGINS = re.compile(r"attempt ([0-9]{1,9}) begins(?: in place: .*)?")
"""The line that the supervisor prints before an attempt. A program may print it too."""


Item = tuple[float, int, bytes] | tuple[float, int] | Event
"""What was printed, with its time and its stream; a number of lines that are lost; or an event."""


class Journal:
    """The history that one process writes. Its methods never wait, except `close`."""

    def __init__(
        self,
        address: str,
        writer: HistoryWriter,
        secret: SecretValues,
        attempt: int,
        make: Callable[[], Target],
        *,
        is_early: Callable[[], bool] = lambda: False,
    ) -> None:
        """`make` opens the target that `address` names. Before that, `is_early` tells whether to wait another second.

        Both are called in the thread.
        """
        self._address, self._make, self._secret, self._is_early = shown(address), make, secret, is_early
        self.attempt = attempt
        """The present attempt. A printed line begins it in the log only if it has begun."""
        self._writer = writer
        self._folder = new_folder(writer)
        self._entry = ""
        """The name of the job's file in the index, once that is written."""
        self._result = ""
        self._series = (Series(LOG, writer, LOG_BYTES), Series(EVENTS, writer, EVENT_BYTES))
        self._streams: dict[int, PrintedLines] = {}
        self._logged = attempt
        """The attempt of the last line of the log."""
        self._queue: deque[Item] = deque()
        self._waiting = self._lost = 0
        """Bytes that are not saved yet, and lines that are lost since the last one that was taken."""
        self._hurried = self._closing = self._warned = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="history", daemon=True)
        self._thread.start()

    def hear(self, stream: int, chunk: bytes) -> None:
        """Takes what the node has printed. `stream` distinguishes lines that are printed at the same time."""
        with self._changed:
            if self._waiting > WAITING_BYTES:
                self._lost += max(1, chunk.count(b"\n"))
                return
            self._note_lost()
            self._queue.append((time.time(), stream, chunk))
            self._waiting += _size(self._queue[-1])
            if len(self._queue) == 1:  # Otherwise the thread knows, and would wake up at each line.
                self._changed.notify()

    def hide(self, env: Mapping[str, str]) -> None:
        """Masks the secrets of these variables in what is printed and noted from now on."""
        self._secret.learn(env)

    def note(self, event: Event, *, hurry: bool = False) -> None:
        """Takes an event. With `hurry`, it is saved as soon as possible: the pod may be deleted."""
        with self._changed:
            if len(self._queue) < WAITING_BYTES // ITEM_BYTES:
                self._queue.append(event)
            self._hurried = self._hurried or hurry
            if hurry or len(self._queue) == 1:
                self._changed.notify()

    def keep_result(self, result: Any, attempt: int) -> str:
        """Saves the job's result as a segment of its own, and returns its path in the history. This waits.

        Raises:
            ERRORS: It cannot be saved now.
        """
        # A target of its own: the thread uses the other one.
        return save_result(result, attempt, self._writer, self._folder, self._make())

    def end(self, result: str) -> None:
        """Takes the result of the job, as far as this process knows. `close` writes it into the index."""
        self._result = result

    def _note_lost(self) -> None:
        """Puts the number of lines that are lost into their place among the others."""
        if self._lost:
            self._queue.append((time.time(), self._lost))
            self._lost = 0

    def close(self, seconds: float) -> None:
        """Saves the rest, and waits for that at most so many seconds."""
        with self._changed:
            self._note_lost()
            self._closing = True
            self._changed.notify()
        self._thread.join(seconds)
        if self._thread.is_alive():
            warn(f"the end of the history in {self._address} could not be written in time")

    def _run(self) -> None:
        target: Target | None = None
        pause = 0.0
        while True:
            items, closing = self._next(pause)
            self._take(items, closing=closing)
            surplus = [name for series in self._series for name in series.surplus()]  # Even if nothing can be saved.
            if target is None and self._may_wait(closing=closing) and self._is_early():
                if closing:
                    return
                pause = SECONDS
                continue
            began = time.monotonic()
            try:
                if target is None:
                    target = self._make()
                    self._tidy(target)
                self._save(target, surplus)
                self._warned = False
                if self._writer.node == 0:  # One node does this for all.
                    self._enlist(target, closing=closing)
            except ERRORS as error:
                self._warn(error)
                if closing:
                    return
            pause = min(max(SECONDS, SHARE * (time.monotonic() - began)), SECONDS_AT_MOST)
            if closing:
                return

    def _may_wait(self, *, closing: bool) -> bool:
        """Whether nothing has to be saved yet.

        A process that was told to stop need not begin a history: another one goes on with the job, and would find it.
        """
        if closing and self._result != STOPPED:
            return False
        return self._waiting <= WAITING_BYTES // 2  # Whoever has printed more has started, and there is little room.

    def _next(self, pause: float) -> tuple[list[Item], bool]:
        """Waits for something to save, and until the pause is over, unless it is urgent."""
        with self._changed:
            self._changed.wait_for(lambda: self._queue or self._unsaved or self._urgent)
            self._changed.wait_for(lambda: self._urgent, pause)
            items = [*self._queue]
            self._queue.clear()
            self._hurried = False
            return items, self._closing

    @property
    def _urgent(self) -> bool:
        return self._hurried or self._closing

    @property
    def _unsaved(self) -> bool:
        return any(series.unsaved for series in self._series)

    def _take(self, items: list[Item], *, closing: bool) -> None:
        log, events = self._series
        for item in items:
            match item:
                case Event():
                    events.add(item.attempt, item.time, self._secret.masked(fields_of(item)))
                case moment, lost:
                    log.add(self._logged, moment, {"t": round(moment, 3), "lost": lost})
                case moment, stream, chunk:
                    for line in self._streams.setdefault(stream, PrintedLines(self._secret)).feed(chunk):
                        self._add(log, moment, *line)
        if closing:
            for lines in self._streams.values():
                for line in lines.finish():
                    self._add(log, time.time(), *line)

    def _add(self, log: Series, moment: float, text: str, continues: bool) -> None:  # noqa: FBT001
        if (begins := BEGINS.fullmatch(text)) and self._logged < int(begins[1]) <= self.attempt:
            self._logged = int(begins[1])
        record = {"t": round(moment, 3), "x": text}
        log.add(self._logged, moment, record | {"c": 1} if continues else record)

    def _save(self, target: Target, surplus: list[str]) -> None:
        for name in surplus:
            with contextlib.suppress(*ERRORS):  # The folder is then larger than it should be.
                target.remove(self._folder, name)
        for series in self._series:
            while series.unsaved:
                target.save(self._folder, series.unsaved[0])
                del series.unsaved[0]
        with self._changed:
            self._waiting = sum(map(_size, self._queue))

    def _tidy(self, target: Target) -> None:
        """Removes the folders of former processes of this node, except the first and the newest."""
        with contextlib.suppress(*ERRORS):  # A folder that does not exist yet has nothing to remove.
            former = [folder for folder in target.folders() if FOLDER.fullmatch(folder)]
            for folder in former[1 : 2 - PROCESSES]:  # This process will have one, too.
                target.remove_folder(folder)

    def _enlist(self, target: Target, *, closing: bool) -> None:
        with contextlib.suppress(*ERRORS):  # It is tried again, and the index only helps to find a job.
            if not self._entry:
                former = [folder for folder in target.folders() if FOLDER.fullmatch(folder)]
                entry = self._writer.entry(min(former, default=self._folder))
                target.mark(entry, line_of(self._writer.head(self.attempt)))
                for result in (SUCCEEDED, STOPPED, FAILED) if former != [self._folder] else ():
                    target.unmark(f"{entry}_{result}")
                self._entry = entry
            if closing and self._result:
                target.mark(f"{self._entry}_{self._result}", b"")

    def _warn(self, error: Exception) -> None:
        if not self._warned:
            self._warned = True
            reason = error.strerror if isinstance(error, OSError) else error
            warn(
                f"the history in {self._address} cannot be written now: {reason}. Training goes on, and this is tried"
                f" again; meanwhile up to {WAITING_BYTES >> 20} MiB of the log are kept for it"
            )


def new_folder(writer: HistoryWriter) -> str:
    """The name of a folder for this process."""
    return writer.folder(time.time(), secrets.token_hex(4))


def save_result(result: Any, attempt: int, writer: HistoryWriter, folder: str, target: Target) -> str:
    """Saves a result as a segment of its own in a process's folder, and returns its path in the target.

    Raises:
        ERRORS: It cannot be saved now.
    """
    series = Series(RESULT, writer, 0)
    now = time.time()
    series.add(attempt, now, {"t": round(now, 3), "result": result})
    (segment,) = series.unsaved
    target.save(folder, segment)
    return f"{writer.node_folder}/{folder}/{segment.name}"


def _size(item: Item) -> int:
    """Memory that something printed takes before it is saved."""
    match item:
        case _, _, chunk:
            return ITEM_BYTES + len(chunk) + LINE_BYTES * chunk.count(b"\n")
    return 0
