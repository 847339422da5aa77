"""What a person sees of a run: a live picture on a terminal, plain lines elsewhere."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.segment import Segment, Segments
from rich.table import Table
from rich.text import Text

from ddpjob_operator.api import DDPJobStatus
from ddpjob_operator.engine import Event

from .describe import how_far
from .follow import Line, Source
from .progress import Progress, Report, parse
from .screen import Screen, visible

Heard = Callable[[], DDPJobStatus | None]

REFRESH_SECONDS = 0.1
HEADINGS = {"epoch": "epoch", "step": "step", "loss": "loss", "samples_per_second": "samples/s", "eta_seconds": "ETA"}
"""By the name of what stands below. A program's other fields have their own names."""


class Display:
    """Shows logs, events and progress until it is closed, each in the order in which it happened."""

    def __init__(self, screen: Screen, follower: Source) -> None:
        self.progress = Progress()
        self._screen = screen
        self._follower = follower
        self._closed = threading.Event()
        self._showing = threading.Lock()
        self._lost: Callable[[], None] | None = None
        self._heard: Heard = lambda: None
        self._live = Live(console=screen, auto_refresh=False, transient=True) if screen.is_terminal else None

    def tell(self, event: Event) -> None:
        """Shows an event."""
        style = "yellow" if event.warning else "cyan"
        reason = f"{event.reason}: " if event.reason != "Notice" else ""
        self._show(last=False)  # What was written before it happened comes before it.
        self._print(Text.assemble((f"ddpjob: {reason}", style), visible(event.message)))

    def catch_up(self) -> None:
        """Takes note of what was written while nobody looked, without showing it again."""
        for line in self._follower.lines():
            self._take(line)

    def forget(self) -> None:
        """What was noted belongs to a former job."""
        self.progress = Progress()
        self._follower.skip()

    @contextmanager
    def following(self, lost: Callable[[], None], heard: Heard = lambda: None) -> Iterator[None]:
        """Shows what the ranks write as long as this lasts, to the last line.

        Calls `lost` when nobody reads any more, as after `| head` or when the terminal is gone. `heard` tells how far
        the job is where its ranks write nothing of that.
        """
        self._lost, self._heard = lost, heard
        thread = threading.Thread(target=self._follow, name="display")
        if self._live:
            self._live.start()
        thread.start()
        try:
            yield
        finally:
            self._closed.set()
            thread.join()
            if self._live:
                self._live.stop()

    def _follow(self) -> None:
        while not self._closed.wait(REFRESH_SECONDS):
            self._show(last=False)
        self._show(last=True)

    def _show(self, *, last: bool) -> None:
        with self._showing:
            shown = [f"{line}\n" for line in self._follower.lines(last=last) if self._is_shown(line)]
            if shown:
                # Rich would look at each line for a while; there may be a million, and nothing to find in them.
                self._print(Segments([Segment("".join(shown))]), end="")
            if self._live:
                told = _picture(self.progress) if self.progress.ranks else _picture_of(self._heard())
                bars = (_as_one_line(line) for line in self._follower.unfinished())
                self._live.update(Group(*bars, told), refresh=True)

    def _is_shown(self, line: Line) -> bool:
        """Whether a line is printed: the live picture has the progress."""
        report = self._take(line)
        return self._live is None or report is None or report.event != "progress"

    def _take(self, line: Line) -> Report | None:
        report = parse(line.text)
        if report is not None:
            self.progress.take(line.rank, report)
        return report

    def _print(self, what: Text | Segments, end: str = "\n") -> None:
        """Prints; that nobody reads it must not end what it tells of."""
        try:
            self._screen.print(what, end=end)
        except OSError:
            if self._lost:
                lost, self._lost = self._lost, None
                lost()


def _picture(progress: Progress) -> Group:
    """One line per rank and a bar for the whole."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    told = dict.fromkeys(key for report in progress.ranks.values() for key in report.values if key != "rank")
    columns = HEADINGS | {key: key for key in told if key not in HEADINGS}
    for heading in ("rank", *columns.values()):
        table.add_column(heading, justify="right")
    for rank, report in sorted(progress.ranks.items()):
        table.add_row(str(rank), *(_shown(report, column) for column in columns))
    return Group(table, _bar(progress))


def _picture_of(heard: DDPJobStatus | None) -> Table | Text:
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


def _bar(progress: Progress) -> Table | Text:
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
