"""What a run prints: results on stdout, warnings and errors on stderr, each line at once and whole.

If nobody reads any more, nothing is printed: training goes on all the same.
"""

import contextlib
import sys
from collections.abc import Sequence
from typing import TextIO


def say(line: str) -> None:
    """One line for those who watch the run."""
    _write(sys.stdout, line)


def record(word: str, **fields: object) -> None:
    """One line that programs read as well: a word, then `key=value`. Fields that are None are left out."""
    say(" ".join([word, *(f"{key}={value}" for key, value in fields.items() if value is not None)]))


def warn(message: str) -> None:
    """Something that is wrong but does not stop the run."""
    _write(sys.stderr, f"warning: {message}")


def complain(message: str) -> None:
    """Why the run ends."""
    _write(sys.stderr, f"error: {message}")


def printable(text: str) -> str:
    """Text that others have written without its control characters, among them the ends of lines."""
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in text)


def listed(things: Sequence[object], most: int) -> str:
    """As many things as a message has room for, and a sign if there are more."""
    return ", ".join(map(str, things[:most])) + (", …" if len(things) > most else "")


def counted(number: int, noun: str) -> str:
    """`1 node`, `2 nodes`, `2 processes`, `2 batches`."""
    ending = "" if number == 1 else "es" if noun.endswith(("s", "tch")) else "s"
    return f"{number} {noun}{ending}"


def _write(stream: TextIO, line: str) -> None:
    with contextlib.suppress(BrokenPipeError):
        stream.write(f"{line}\n")
        stream.flush()
