"""The only way by which text gets to a screen: as it was written, never as markup."""

import contextlib
import os
import sys
import time
from collections.abc import Iterator
from typing import IO, Any

from rich.console import Console  # noqa: TID251  Here it is given its rule.
from rich.control import Control
from rich.text import Text

from ddpjob_operator.text import visible

SIP = 1 << 11
"""Characters that are written at once: even a serial line at 9600 baud takes them in a few seconds."""


class Screen(Console):
    """A terminal or pipe. What is printed on it is never read as markup, neither rich's nor the terminal's own."""

    def __init__(self, **options: Any) -> None:
        super().__init__(highlight=False, markup=False, emoji=False, soft_wrap=True, **options)

    def render_str(self, text: str, *arguments: Any, **options: Any) -> Text:
        """All printed text comes through here, including that of a table's cells."""
        return super().render_str(visible(text), *arguments, **options)

    def show_cursor(self, show: bool = True) -> bool:  # noqa: FBT001, FBT002  As rich has it.
        """Shows or hides it; nobody else's text may, so it does not pass the door."""
        obeyed = getattr(self.file, "obeyed", None)
        if obeyed is None:
            return super().show_cursor(show)
        obeyed(str(Control.show_cursor(show)))
        return True

    def on_broken_pipe(self) -> None:
        """Lets the caller decide; rich would end the process, and a run must not end because nobody reads it."""
        raise BrokenPipeError


class Watched:
    """A file that knows how long its reader has taken nothing from it."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file
        self._since: float | None = None

    def write(self, text: str) -> int:
        """Writes little at once: a large write takes as long with a slow reader as with one that is asleep."""
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
        """How long it has been waiting for its reader."""
        since = self._since
        return 0.0 if since is None else time.monotonic() - since

    def __getattr__(self, name: str) -> Any:
        """Everything else is the file's own."""
        return getattr(self._file, name)


@contextlib.contextmanager
def as_far_as_read() -> Iterator[None]:
    """What is printed here is printed as far as somebody reads it; if nobody does, nothing changes."""
    try:
        yield
    except OSError:
        drop_output()


def drop_output() -> None:
    """Discards further output: at its end Python would print the rest again, and fail."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
