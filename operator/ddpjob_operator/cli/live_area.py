"""The lines at the bottom of a terminal that are drawn again and again, below what is printed for good."""

import math

from rich.console import RenderableType
from rich.control import Control
from rich.live import Live
from rich.segment import ControlType, Segment, SegmentLines

from .screen import Screen


class LiveArea:
    """Draws the lines, and erases what it has drawn before, also after the terminal was resized."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._live = Live(console=screen, auto_refresh=False, transient=True)
        self._widths: list[int] = []
        """The cells of each line that was drawn."""

    def start(self) -> None:
        """Hides the cursor."""
        self._live.start()

    def stop(self) -> None:
        """Erases the lines, and shows the cursor."""
        self.follow_resizing()
        self._live.stop()

    def draw(self, what: RenderableType) -> None:
        """Draws `what` in place of what was drawn before: only the last lines, if the terminal is too low for all."""
        self.follow_resizing()
        lines = self._screen.render_lines(what, pad=False)[1 - max(2, self._screen.height) :]
        self._widths = [Segment.get_line_length(line) for line in lines]
        self._live.update(SegmentLines(lines, new_lines=True), refresh=True)

    def follow_resizing(self) -> None:
        """Call this before anything is printed: rich does not know that a narrower terminal has wrapped the lines.

        Such a terminal shows more rows than rich would erase. The few that wrap nothing, such as xterm, lose as many
        lines of the output above.
        """
        width = max(1, self._screen.width)
        wrapped = sum(max(1, math.ceil(cells / width)) for cells in self._widths) - len(self._widths)
        if wrapped:
            up = ((ControlType.ERASE_IN_LINE, 2), (ControlType.CURSOR_UP, 1))
            self._screen.control(Control(*up * wrapped))
        self._widths = [min(cells, width) for cells in self._widths]
