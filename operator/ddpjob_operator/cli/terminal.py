r"""The door by which text comes to a terminal. What others have written may colour a line and draw it again, no more.

A terminal obeys what it is sent: it can be given a title, another screen, contents for the clipboard, or an order of
letters in which a line reads otherwise than it is. So all that a command prints passes here, whoever wrote it.
Colours, ends of lines, tabs, carriage returns, and what bars of progress need to draw themselves again (erase the
line, go up) pass. Everything else is written out, as `\x1b`.
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
    """Makes of a stream what a terminal may be sent, however the stream is cut into pieces."""

    def __init__(self) -> None:
        self._held = ""
        """The beginning of what may be a sequence."""
        self._coloured = False

    def passed(self, text: str) -> str:
        """What is to be sent now."""
        text = self._held + text
        last = text.rfind("\x1b", max(0, len(text) - LONGEST_PART))
        end = last if last >= 0 and PART_OF_SEQUENCE.fullmatch(text, last) else len(text)
        self._held = text[end:]
        return PIECE.sub(self._piece, text[:end])

    def _piece(self, found: re.Match[str]) -> str:
        said = found[0]
        if said == "\n":  # A colour, or letters in the background's, must not go on in the lines of others.
            plain, self._coloured = PLAIN * self._coloured, False
            return f"{plain}\n"
        if (colour := found["colour"]) is not None:
            self._coloured = colour.strip("0;") != ""
            return said
        return said if len(said) > 1 or said == "\r" else written_out(found)


class Terminal:
    """A stream whose text passes the filter for as long as it leads to a terminal: a run may leave it."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self._filter = Filter()

    def write(self, text: str) -> int:
        """Writes what a terminal may be sent, or to a file or a pipe all of it."""
        self._stream.write(self._filter.passed(text) if self._stream.isatty() else text)
        return len(text)

    def obeyed(self, text: str) -> None:
        """Writes what is ours."""
        self._stream.write(text)

    def __getattr__(self, name: str) -> Any:
        """Everything else is the stream's own."""
        return getattr(self._stream, name)


def guard() -> None:
    """Lets all that this process prints on a terminal pass the filter."""
    sys.stdout, sys.stderr = (
        cast("IO[str]", Terminal(stream)) if stream is not None and stream.isatty() else stream
        for stream in (sys.stdout, sys.stderr)
    )
