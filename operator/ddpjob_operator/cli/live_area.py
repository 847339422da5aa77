"""The lines at the bottom of a terminal that are redrawn continually, below the output that scrolls."""

import math

from rich.console import RenderableType
from rich.control import Control
from rich.live import Live
from rich.segment import ControlType, Segment, SegmentLines

from .screen import Screen


class LiveArea:
    """Draws lines in place of those that it drew before, even if the terminal was resized in between."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._live = Live(console=screen, auto_refresh=False, transient=True)
        self._widths: list[int] = []
        """The width of each drawn line, in cells."""

    def start(self) -> None:
        """Hides the cursor."""
        self._live.start()

    def stop(self) -> None:
        """Erases the lines, and shows the cursor."""
        self.follow_resizing()
        self._live.stop()

    def draw(self, what: RenderableType) -> None:
        """Draws `what` in place of the previous lines; only its last lines, if the terminal has too few rows."""
        self.follow_resizing()
        lines = self._screen.render_lines(what, pad=False)[1 - max(2, self._screen.height) :]
        self._widths = [Segment.get_line_length(line) for line in lines]
        self._live.update(SegmentLines(lines, new_lines=True), refresh=True)

    def follow_resizing(self) -> None:
        """Erases the extra rows that appear when a terminal is made narrower and wraps the lines that were drawn.

        Must be called before anything is printed, because rich does not notice the wrapping and would erase too few
        rows. A few terminals, such as xterm, do not wrap; there, some rows of the output above the lines are lost.
        """
        width = max(1, self._screen.width)
        wrapped = sum(max(1, math.ceil(cells / width)) for cells in self._widths) - len(self._widths)
        if wrapped:
            up = ((ControlType.ERASE_IN_LINE, 2), (ControlType.CURSOR_UP, 1))
            self._screen.control(Control(*up * wrapped))
        self._widths = [min(cells, width) for cells in self._widths]
