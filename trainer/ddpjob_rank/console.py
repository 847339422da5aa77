"""Prints a run's output: results on stdout, warnings and errors on stderr. Each line is written whole and flushed.

If the pipe is closed because nobody reads it, the line is dropped and training continues.
"""

import contextlib
import io
import sys
import threading
import time
from collections.abc import Sequence
from typing import TextIO

PARTIAL_SECONDS = 0.5
"""How long text without a line end may wait to be written."""


def write_whole_lines() -> None:
    """Makes print() write each line in one piece from now on.

    Ranks of a node share one log. With PYTHONUNBUFFERED a line and its end are two writes, so that the lines of two
    ranks get mixed. Text without a line end, which would appear at once, now appears after PARTIAL_SECONDS: it may
    tell where a program hangs.
    """
    # A program that is embedded may have none.
    streams = [stream for stream in (sys.stdout, sys.stderr) if isinstance(stream, io.TextIOWrapper)]
    # Other streams are buffered, and have locks, with which a fork at the wrong moment would leave its child.
    unbuffered = [stream for stream in streams if stream.write_through]
    for stream in streams:
        stream.reconfigure(line_buffering=True, write_through=False)
    if unbuffered:
        threading.Thread(target=_write_partial_lines, args=(unbuffered,), name="console", daemon=True).start()


def _write_partial_lines(streams: Sequence[io.TextIOWrapper]) -> None:
    while not all(stream.closed for stream in streams):
        time.sleep(PARTIAL_SECONDS)
        for stream in streams:
            with contextlib.suppress(OSError, ValueError):  # Nobody reads it, or the program has closed it.
                stream.flush()


def say(line: str) -> None:
    """Prints a line on stdout, for people who watch the run."""
    _write(sys.stdout, line)


def record(word: str, **fields: object) -> None:
    """Prints a line that programs can also parse: a word, then `key=value` for each field that is not None."""
    say(" ".join([word, *(f"{key}={value}" for key, value in fields.items() if value is not None)]))


def warn(message: str) -> None:
    """Prints a warning on stderr: something is wrong, but does not stop the run."""
    _write(sys.stderr, f"warning: {message}")


def complain(message: str) -> None:
    """Prints on stderr why the run ends."""
    _write(sys.stderr, f"error: {message}")


def printable(text: str) -> str:
    """Escapes the control characters in foreign text, such as line ends."""
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


def listed(things: Sequence[object], most: int) -> str:
    """The first `most` things, separated by commas, with an ellipsis if there are more."""
    return ", ".join(map(str, things[:most])) + (", …" if len(things) > most else "")


def counted(number: int, noun: str) -> str:
    """A number with its noun: `1 node`, `2 nodes`, `2 processes`, `2 batches`."""
    ending = "" if number == 1 else "es" if noun.endswith(("s", "tch")) else "s"
    return f"{number} {noun}{ending}"


def with_article(noun: str) -> str:
    """A noun, or the name of a class, with its indefinite article: `an int`, `a Tensor`."""
    return f"{'an' if noun[:1].lower() in set('aeiou') else 'a'} {noun}"


def _write(stream: TextIO, line: str) -> None:
    with contextlib.suppress(BrokenPipeError):
        stream.write(f"{line}\n")
        stream.flush()
