"""Prints text literally: no part of it is interpreted as rich's markup or as a terminal's control sequence."""

import contextlib
import errno
import os
import sys
import time
from collections.abc import Iterator
from typing import IO, Any, TextIO

from rich.cells import cell_len
from rich.console import Console  # noqa: TID251  Only this module may use it, for Screen.
from rich.control import Control
from rich.text import Text

from ddpjob_operator.text import visible

LEAST = 16
"""Minimum width of wrapped text, in cells; on a narrower terminal the lines wrap by themselves."""
SIP = 1 << 11
"""How many characters are written in one call. Even a serial line at 9600 baud accepts them within a few seconds."""


NOT_WRITTEN = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})


def is_of_output(error: OSError) -> bool:
    """Whether an error means that the output's reader is gone or its disk is full. Such an error names no file."""
    return isinstance(error, BrokenPipeError) or (error.errno in NOT_WRITTEN and error.filename is None)


class Screen(Console):
    """A terminal or pipe that prints text literally, neither as rich's markup nor as control sequences."""

    def __init__(self, **options: Any) -> None:
        # In a notebook, rich would make an HTML element of each piece of text.
        super().__init__(highlight=False, markup=False, emoji=False, soft_wrap=True, force_jupyter=False, **options)

    def render_str(self, text: str, *arguments: Any, **options: Any) -> Text:
        """Makes control characters visible; rich calls this for all printed text, including the cells of a table."""
        return super().render_str(visible(text), *arguments, **options)

    def entry(self, head: str, text: str, style: str = "") -> None:
        """Prints `head` and a text in one line. On a terminal the text is wrapped beside `head`, at spaces.

        Commands, paths and addresses are not to be printed like this: a reader copies them as one line.
        """
        indent = cell_len(head)
        room = self.width - indent if self.is_terminal else 0
        lines: list[Text] = [Text(visible(text), style)] if room < LEAST else self.folded(text, room, style)
        self.print(Text(visible(head)) + Text(f"\n{' ' * indent}").join(lines))

    def folded(self, text: str, room: int, style: str = "") -> list[Text]:
        """A text as lines of at most `room` cells; a word that is longer is divided."""
        lines = [*Text(visible(text), style).wrap(self, room, overflow="fold")]
        for line in lines:
            line.rstrip()
        return lines

    def show_cursor(self, show: bool = True) -> bool:  # noqa: FBT001, FBT002  As rich has it.
        """Shows or hides the cursor, bypassing the filter of `terminal`, which blocks this sequence in other text."""
        write_unfiltered = getattr(self.file, "write_unfiltered", None)
        if write_unfiltered is None:
            return super().show_cursor(show)
        write_unfiltered(str(Control.show_cursor(show)))
        return True

    def on_broken_pipe(self) -> None:
        """Raises BrokenPipeError: rich would end the process, but a run must not end when its output is closed."""
        raise BrokenPipeError


class Watched:
    """A file that measures how long a write has been waiting for the reader."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file
        self._since: float | None = None

    def write(self, text: str) -> int:
        """Writes in small pieces, so that a slow reader can be distinguished from one that does not read at all."""
        try:
            for begin in range(0, len(text), SIP):
                self._since = time.monotonic()
                self._file.write(text[begin : begin + SIP])
                self._file.flush()
        finally:
            self._since = None
        return len(text)

    @property
    def unread_seconds(self) -> float:
        """How long the present write has been waiting for the reader, in seconds; 0 if nothing is being written."""
        since = self._since
        return 0.0 if since is None else time.monotonic() - since

    def __getattr__(self, name: str) -> Any:
        """Delegates all other attributes to the file."""
        return getattr(self._file, name)


@contextlib.contextmanager
def ignoring_closed_output() -> Iterator[None]:
    """Ignores errors in writing output within its block: if the reader is gone, the rest is discarded."""
    try:
        yield
    except OSError:
        drop_output()


def drop_output() -> None:
    """Discards further output: at exit Python would try to flush the rest to the closed output, and fail."""
    _discard(sys.stdout)


def complain(message: str) -> None:
    """Prints a line on standard error, if anybody can read it."""
    try:
        print(message, file=sys.stderr, flush=True)
    except OSError:
        _discard(sys.stderr)  # Otherwise Python would exit with 120, instead of the code of the command.


def _discard(stream: TextIO) -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
