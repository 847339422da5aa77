"""Shows a run while it runs: as a live display on a terminal, as plain lines elsewhere."""

import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from typing import IO, cast

from rich.console import RenderableType
from rich.segment import Segment, Segments
from rich.text import Text

from ddpjob_operator.api import DDPJobStatus
from ddpjob_operator.engine import Event
from ddpjob_operator.local import ASIDE
from ddpjob_operator.text import one_line
from ddpjob_operator.view_model import LoggedProgress, Report

from .live_area import LiveArea
from .live_view import live_view
from .run_logs import Line, LineSource
from .screen import Screen, Watched

StatusSource = Callable[[], DDPJobStatus | None]
"""Returns the job's present status; None if it has none."""

REFRESH_SECONDS = 0.1
PIECE = 1 << 17
"""How many characters of log lines are printed in one call."""
LAST_SECONDS = 5.0
"""How long remaining output is still shown after the user has asked to stop."""
BLOCKED_SECONDS = 3.0
"""If no output was accepted for longer than this, the output counts as blocked: the terminal is paused, or the
reader of the pipe does not read."""
CUT_SHORT = Text("ddpjob: the rest of the output is only in the logs", "yellow")


def origin(event: Event) -> str:
    """The prefix of an event's message: `ddpjob` and, unless the event is only a notice, its reason."""
    return f"ddpjob: {event.reason}: " if event.reason not in {"Notice", ASIDE} else "ddpjob: "


class Display:
    """Shows logs, events and progress in the order in which they happened."""

    def __init__(self, screen: Screen, source: LineSource) -> None:
        self.progress = LoggedProgress()
        self._screen = screen
        self._source = source
        self._events: queue.SimpleQueue[tuple[Iterator[Line], Event] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._cut_short = threading.Event()
        self._blocked = False
        self._watched: Watched | None = None
        self._lost: Callable[[], None] | None = None
        self._status: StatusSource = lambda: None
        is_live = screen.is_terminal and not screen.is_dumb_terminal
        self._live = LiveArea(screen) if is_live else None

    def tell(self, event: Event) -> None:
        """Shows an event. Inside `following` it is only queued, so that slow output does not block the caller."""
        lines = self._source.lines()  # Lines that were written before the event are shown before it.
        if self._thread is None:
            self._show_event(lines, event)
        else:
            self._events.put((lines, event))

    def catch_up(self) -> None:
        """Reads the progress in lines that were written before this process started, without showing the lines."""
        for line in self._source.lines():
            self._take(line, None)

    def forget(self) -> None:
        """Forgets the progress read so far, because it belongs to an earlier job."""
        self.progress = LoggedProgress()
        self._source.skip()

    @contextmanager
    def following(
        self,
        lost: Callable[[], None],
        status: StatusSource = lambda: None,
        stopped: Callable[[], bool] = lambda: False,
    ) -> Iterator[None]:
        """Shows the ranks' output while the context is open; on exit, shows the remaining lines.

        Calls `lost` when the output cannot be written any more, as after `| head` or when the terminal is closed.
        `status` returns the job's status, whose progress is shown if the ranks print none. If `stopped` returns True,
        or the body was interrupted, the exit waits only briefly for the remaining lines, and not at all if the
        output is blocked.
        """
        self._lost, self._status = lost, status
        self._watched = Watched(self._screen.file)
        self._screen.file = cast("IO[str]", self._watched)
        self._thread = threading.Thread(target=self._follow, name="display", daemon=True)
        self._thread.start()
        try:
            yield
        finally:
            interrupted = sys.exception() is not None
            self._events.put(None)
            try:
                self._wait_shown(self._thread, lambda: interrupted or stopped())
            except KeyboardInterrupt:  # The display still has to end, so that the terminal gets its cursor back.
                self._cut_short.set()
                self._blocked = True  # If the user interrupts this wait too, the exit must not wait for the output.
                self._wait_shown(self._thread, lambda: True)
                raise

    def leave_if_blocked(self, code: int) -> None:
        """Ends this process with `code` if its output is blocked, because a normal exit would wait to flush it."""
        if self._blocked:
            os._exit(code)

    def _wait_shown(self, thread: threading.Thread, stopped: Callable[[], bool]) -> None:
        since: float | None = None
        while True:
            thread.join(REFRESH_SECONDS)
            if not thread.is_alive():
                self._thread, self._blocked = None, False
                return
            now = time.monotonic()
            since = since or (now if stopped() else None)
            if since is None:
                continue
            if now - since > LAST_SECONDS:
                self._cut_short.set()
            if self._watched and self._watched.unread_seconds > BLOCKED_SECONDS:
                self._blocked = True
                return

    def _follow(self) -> None:
        with ExitStack() as ending:
            if self._live:
                with self._printing():
                    self._live.start()
                    ending.callback(self._end_display, self._live)
            while True:
                try:
                    queued = self._events.get(timeout=REFRESH_SECONDS)
                except queue.Empty:
                    self._show(self._source.lines())
                    continue
                if queued is None:
                    break
                self._show_event(*queued)
            self._show(self._source.lines(last=True))
            if self._cut_short.is_set():
                self._print(CUT_SHORT)

    def _end_display(self, live: LiveArea) -> None:
        with self._printing():
            live.stop()

    def _show_event(self, lines: Iterator[Line], event: Event) -> None:
        self._show(lines)
        style = "yellow" if event.warning else "cyan"
        faint = "dim" if event.reason == ASIDE else ""
        self._print(Text.assemble((origin(event), faint or style), (one_line(event.message), faint)))

    def _show(self, lines: Iterator[Line]) -> None:
        for piece in self._pieces(lines):
            if self._cut_short.is_set():
                continue  # Parse the lines without printing them, because the summary names the last checkpoint.
            # Print a Segment: rich would look for markup in a string, and there may be a million lines.
            self._print(Segments([Segment(piece)]), end="")
        if self._live:
            bars, now = self._source.unfinished(), datetime.now(UTC)
            view = live_view(self.progress, self._status(), bars, now, self._screen.height)
            with self._printing():
                self._live.draw(view)

    def _pieces(self, lines: Iterator[Line]) -> Iterator[str]:
        """The lines to print, joined into pieces of about PIECE characters."""
        piece: list[str] = []
        size = 0
        for line in lines:
            if self._is_shown(line):
                piece.append(f"{line}\n")
                size += len(piece[-1])
            if size > PIECE:
                yield "".join(piece)
                piece, size = [], 0
        if piece:
            yield "".join(piece)

    def _is_shown(self, line: Line) -> bool:
        """Whether to print a line: progress lines are left out if the live display shows them."""
        report = self._take(line, datetime.now(UTC))
        return self._live is None or report is None or report.event != "progress"

    def _take(self, line: Line, now: datetime | None) -> Report | None:
        return self.progress.hear(line.node, line.text, line.attempt, now)

    def _print(self, what: RenderableType, end: str = "\n") -> None:
        with self._printing():
            if self._live:
                self._live.follow_resizing()
            self._screen.print(what, end=end)

    @contextmanager
    def _printing(self) -> Iterator[None]:
        """Catches write errors, because a closed output must not end the run. Calls `lost` at the first error."""
        try:
            yield
        except OSError:
            self._cut_short.set()
            if self._lost:
                lost, self._lost = self._lost, None
                lost()
