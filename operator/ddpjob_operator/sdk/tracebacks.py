"""Finds a traceback in the last lines of a log."""

import re
from collections.abc import Sequence
from itertools import takewhile

BEGIN = re.compile(r"(\[rank\d{1,6}\]: ?|)Traceback \(most recent call last\):")
"""The first line of a traceback, with what torch.distributed puts before each of its lines."""
CELL = re.compile(r'  File "(?:[^"]*/)?ddpjob_cells/([^"/]{1,64})\.py", line ')
"""The beginning of a frame's line, if the frame is in a cell of a notebook. The rest is the same in both forms."""
MOST_LINES = 40
"""How many lines of an exception's message are taken."""


def last_traceback(lines: Sequence[str]) -> str:
    """The last traceback, with its exception; empty if there is none.

    Further lines of the exception's message belong to it if they have torch's prefix, too, or are indented. Other
    lines may be those of another rank, which writes to the same log.
    """
    begins = [(index, found[1]) for index, line in enumerate(lines) if (found := BEGIN.match(line))]
    if not begins:
        return ""
    begin, prefix = begins[-1]
    own = [line.removeprefix(prefix) for line in lines[begin:] if line.startswith(prefix.rstrip())]
    frames = 1 + sum(1 for _ in takewhile(_continues, own[1:]))
    message = own[frames + 1 : frames + MOST_LINES]
    trace = [*own[: frames + 1], *(message if prefix else takewhile(_continues, message))]
    return "\n".join(CELL.sub(r"  Cell \1, line ", line) for line in trace)


def _continues(line: str) -> bool:
    return not line or line[0].isspace()
