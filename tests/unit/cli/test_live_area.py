"""What is left on a terminal by lines that are drawn again and again."""

import io
import random
import re

import pytest
from ddpjob_operator.cli.live_area import LiveArea
from ddpjob_operator.cli.screen import Screen

PIECES = re.compile(r"\x1b\[([0-9]*)([AK])|\x1b\[\?25[lh]|\x1b\[[0-9;]*m|([\r\n])|([^\x1b\r\n]+)")


class Terminal(io.StringIO):
    """A terminal that wraps its lines anew when its width changes, as tmux, kitty and GNOME's terminal do."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width
        self._lines = [""]
        """Lines as they were written; each takes a row, or more if it is wider than the terminal."""
        self._row, self._column = 0, 0

    @property
    def rows(self) -> list[str]:
        return [row for line in self._lines for row in self._wrapped(line)]

    def _wrapped(self, line: str) -> list[str]:
        return [line[begin : begin + self.width] for begin in range(0, max(1, len(line)), self.width)]

    def resize(self, width: int) -> None:
        """The cursor stays at the end of what was written last."""
        self.width = width
        self._row, self._column = len(self.rows) - 1, len(self.rows[-1])

    def write(self, text: str) -> int:
        for number, order, end, plain in PIECES.findall(text):
            if order == "A":
                self._row = max(0, self._row - int(number or 1))
            elif order == "K" or plain:
                self._put(plain)
            elif end == "\n":
                self._row, self._column = self._row + 1, 0
                while len(self.rows) <= self._row:
                    self._lines.append("")
            elif end == "\r":
                self._column = 0
        return len(text)

    def _put(self, text: str) -> None:
        """Writes text over the row, or erases the row; a row that is written to is no part of a wrapped line."""
        rows = self.rows
        row = rows[self._row]
        rows[self._row] = f"{row[: self._column].ljust(self._column)}{text}" if text else ""
        self._lines, self._column = rows, self._column + len(text)


@pytest.fixture(autouse=True)
def _terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")


@pytest.mark.parametrize("printed", [True, False], ids=["a line is printed", "only the area is drawn"])
@pytest.mark.parametrize("narrower", [40, 26, 79])
def test_a_terminal_that_was_made_narrower_keeps_no_ghost_of_a_line(narrower: int, *, printed: bool) -> None:
    terminal = Terminal(80)
    screen = Screen(file=terminal, force_terminal=True, width=80, height=24)
    area = LiveArea(screen)
    area.start()
    screen.print("before")
    for moment in range(9):
        area.draw(f"{moment} {'=' * 70}\n{moment} short")
        if moment in {3, 6}:
            width = narrower if moment == 3 else random.randint(20, 90)
            terminal.resize(width)
            screen.width = width
            if printed:
                area.follow_resizing()
                screen.print(f"line {moment}")
    assert [row.split()[0] for row in terminal.rows if row.strip()][-1] == "8"
    assert sum(row.endswith("short") for row in terminal.rows) == 1
    area.stop()
    lines = ["before", *(f"line {moment}" for moment in (3, 6) if printed)]
    assert [row.strip() for row in terminal.rows if row.strip()] == lines


def test_of_more_lines_than_fit_the_last_are_drawn() -> None:
    terminal = Terminal(80)
    area = LiveArea(Screen(file=terminal, force_terminal=True, width=80, height=5))
    area.start()
    area.draw("\n".join(f"line {number}" for number in range(9)))
    assert [row for row in terminal.rows if row] == [f"line {number}" for number in range(5, 9)]
    area.stop()
