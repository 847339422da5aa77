r"""Filters all text that a command prints on a terminal. Logs and names may colour and redraw lines, but no more.

A terminal executes the control sequences that it receives: they can set its title, switch the screen, write the
clipboard, or reorder letters so that a line reads differently. Therefore everything that a command prints is
filtered. The filter passes colours, line ends, tabs, carriage returns and the sequences with which progress bars
redraw themselves (erase the line, cursor up). All other control characters are written out, as `\x1b`.
"""

import re
import sys
from typing import IO, Any, cast

from ddpjob_operator.text import CONTROL, written_out

MOST_PARAMETERS = 64
PARAMETERS = rf"[0-9;:]{{0,{MOST_PARAMETERS}}}"
OBEYED = rf"\x1b\[(?:(?P<colour>{PARAMETERS})m|[012]?K|[0-9]{{0,4}}A)"
PIECE = re.compile(rf"{OBEYED}|\r|\n|{CONTROL}")
PART_OF_SEQUENCE = re.compile(rf"\x1b(?:\[{PARAMETERS})?")
LONGEST_PART = MOST_PARAMETERS + 2

PLAIN = "\x1b[0m"


class Filter:
    """Filters a stream of text that arrives in pieces. A control sequence may be split between two pieces."""

    def __init__(self) -> None:
        self._held = ""
        """The end of the last piece, if it may be the beginning of a sequence."""
        self._coloured = False

    def passed(self, text: str) -> str:
        """Filters the text, and returns as much of it as can be written now."""
        text = self._held + text
        last = text.rfind("\x1b", max(0, len(text) - LONGEST_PART))
        end = last if last >= 0 and PART_OF_SEQUENCE.fullmatch(text, last) else len(text)
        self._held = text[end:]
        return PIECE.sub(self._piece, text[:end])

    def _piece(self, found: re.Match[str]) -> str:
        matched = found[0]
        if matched == "\n":  # Reset the colour, so that it does not affect the lines of other writers.
            plain, self._coloured = PLAIN * self._coloured, False
            return f"{plain}\n"
        if (colour := found["colour"]) is not None:
            self._coloured = colour.strip("0;") != ""
            return matched
        return matched if len(matched) > 1 or matched == "\r" else written_out(found)


class Terminal:
    """A stream whose text is filtered while the stream is a terminal. `run --detach` may redirect it to a file."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self._filter = Filter()

    def write(self, text: str) -> int:
        """Writes text: filtered to a terminal, unchanged to a file or a pipe."""
        self._stream.write(self._filter.passed(text) if self._stream.isatty() else text)
        return len(text)

    def write_unfiltered(self, text: str) -> None:
        """Writes this command's own control sequences without the filter."""
        self._stream.write(text)

    def __getattr__(self, name: str) -> Any:
        """Delegates all other attributes to the stream."""
        return getattr(self._stream, name)


def guard() -> None:
    """Filters everything that this process prints on a terminal."""
    sys.stdout, sys.stderr = (
        cast("IO[str]", Terminal(stream)) if stream is not None and stream.isatty() else stream
        for stream in (sys.stdout, sys.stderr)
    )
