"""What a person sees of a run: a live display on a terminal, plain lines elsewhere."""

import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import IO, cast

from rich.console import Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.segment import Segment, Segments
from rich.table import Table
from rich.text import Text

from ddpjob_operator.api import DDPJobStatus
from ddpjob_operator.engine import Event
from ddpjob_operator.text import one_line, visible

from .describe import how_far
from .progress import LoggedProgress, Report, parse
from .run_logs import Line, LineSource
from .screen import Screen, Watched

Heard = Callable[[], DDPJobStatus | None]

REFRESH_SECONDS = 0.1
PIECE = 1 << 17
"""Characters that are printed at once."""
LAST_SECONDS = 5.0
"""For what is still to be shown when the user has asked for the end."""
BLOCKED_SECONDS = 3.0
"""If none of the output is taken for longer than this, nobody reads it: the terminal or the pipe's reader stands
still."""
CUT_SHORT = Text("ddpjob: the rest of the output is only in the logs", "yellow")
HEADINGS = {"epoch": "epoch", "step": "step", "loss": "loss", "samples_per_second": "samples/s", "eta_seconds": "ETA"}
"""By the name of the field that stands below. A program's other fields have their own names."""


class Display:
    """Shows logs, events and progress until it is closed, each in the order in which it happened."""

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
        self._heard: Heard = lambda: None
        is_live = screen.is_terminal and not screen.is_dumb_terminal
        self._live = Live(console=screen, auto_refresh=False, transient=True) if is_live else None

    def tell(self, event: Event) -> None:
        """Shows an event. While the ranks are followed, this does not wait for the reader."""
        lines = self._source.lines()  # What was written before it happened comes before it.
        if self._thread is None:
            self._show_event(lines, event)
        else:
            self._events.put((lines, event))

    def catch_up(self) -> None:
        """Takes note of what was written while nobody was watching, without showing it again."""
        for line in self._source.lines():
            self._take(line)

    def forget(self) -> None:
        """Forgets what was noted, which belongs to a former job."""
        self.progress = LoggedProgress()
        self._source.skip()

    @contextmanager
    def following(
        self,
        lost: Callable[[], None],
        heard: Heard = lambda: None,
        stopped: Callable[[], bool] = lambda: False,
    ) -> Iterator[None]:
        """Shows what the ranks write as long as this lasts, to the last line.

        Calls `lost` when nobody reads any more, as after `| head` or when the terminal is gone. `heard` says how far
        the job is if its ranks do not write it. If the user has `stopped` it, or interrupts this, it does not wait
        long for lines that are still to come, and not at all for a blocked output.
        """
        self._lost, self._heard = lost, heard
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
            except KeyboardInterrupt:  # What is on its way is still shown, and the terminal gets its cursor back.
                self._cut_short.set()
                self._blocked = True  # In case the user interrupts this too; until it is seen to end.
                self._wait_shown(self._thread, lambda: True)
                raise

    def leave_if_blocked(self, code: int) -> None:
        """Ends this process with this exit code if its output is blocked: Python's own exit would wait for it."""
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
                    told = self._events.get(timeout=REFRESH_SECONDS)
                except queue.Empty:
                    self._show(self._source.lines())
                    continue
                if told is None:
                    break
                self._show_event(*told)
            self._show(self._source.lines(last=True))
            if self._cut_short.is_set():
                self._print(CUT_SHORT)

    def _end_display(self, live: Live) -> None:
        with self._printing():
            live.stop()

    def _show_event(self, lines: Iterator[Line], event: Event) -> None:
        self._show(lines)
        style = "yellow" if event.warning else "cyan"
        reason = f"{event.reason}: " if event.reason != "Notice" else ""
        self._print(Text.assemble((f"ddpjob: {reason}", style), one_line(event.message)))

    def _show(self, lines: Iterator[Line]) -> None:
        for piece in self._pieces(lines):
            if self._cut_short.is_set():
                continue  # They are still noted: the summary names the last checkpoint. Rich would spend some
            # time on each line; there may be a million, with nothing to find in them.
            self._print(Segments([Segment(piece)]), end="")
        if self._live:
            told = _display(self.progress) if self.progress.ranks else _display_of(self._heard())
            bars = (_as_one_line(line) for line in self._source.unfinished())
            with self._printing():
                self._live.update(Group(*bars, told), refresh=True)

    def _pieces(self, lines: Iterator[Line]) -> Iterator[str]:
        """The lines that are printed, many at a time."""
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
        """Whether a line is printed: the live display has the progress."""
        report = self._take(line)
        return self._live is None or report is None or report.event != "progress"

    def _take(self, line: Line) -> Report | None:
        report = parse(line.text)
        if report is not None:
            self.progress.take(line.node, report)
        return report

    def _print(self, what: RenderableType, end: str = "\n") -> None:
        with self._printing():
            self._screen.print(what, end=end)

    @contextmanager
    def _printing(self) -> Iterator[None]:
        """If nobody reads it, that must not end the run it shows."""
        try:
            yield
        except OSError:
            self._cut_short.set()
            if self._lost:
                lost, self._lost = self._lost, None
                lost()


def _display(progress: LoggedProgress) -> Group:
    """One line per rank and a bar for the whole."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    told = dict.fromkeys(key for report in progress.ranks.values() for key in report.values if key != "rank")
    columns = HEADINGS | {key: key for key in told if key not in HEADINGS}
    for heading in ("rank", *columns.values()):
        table.add_column(heading, justify="right")
    for rank, report in sorted(progress.ranks.items()):
        table.add_row(str(rank), *(_shown(report, column) for column in columns))
    return Group(table, _bar(progress))


def _display_of(heard: DDPJobStatus | None) -> Table | Text:
    """A bar for the whole, and in words what the job's supervisor counts or is told."""
    if heard is None or not (words := ", ".join(how_far(heard))):
        return Text("waiting for the first step", style="dim")
    percent = heard.progress.percent if heard.progress else None
    if percent is None:
        return Text(words)
    line = Table.grid(padding=(0, 1))
    line.add_row(ProgressBar(total=100.0, completed=percent, width=20), words)
    return line


def _as_one_line(line: Line) -> Text:
    return Text(visible(str(line)), no_wrap=True, overflow="ellipsis")


def _shown(report: Report, column: str) -> str:
    value = report.values.get(column, "")
    return f"{value} s" if value and column == "eta_seconds" else value


def _bar(progress: LoggedProgress) -> Table | Text:
    slowest = min(progress.ranks.values(), key=_step)
    total = slowest.total("step")
    if not total:
        return Text("")
    line = Table.grid(padding=(0, 1))
    share = _step(slowest) / total
    line.add_row(ProgressBar(total=1.0, completed=share, width=40), f"{share:4.0%}")
    return line


def _step(report: Report) -> float:
    return report.number("step") or 0.0
