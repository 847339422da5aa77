"""Finds a traceback in the last lines of a log."""

import re
from collections.abc import Sequence

PREFIX = re.compile(r"^\[rank\d{1,6}\]: ?")
"""What torch.distributed puts before each line of a traceback."""
BEGIN = "Traceback (most recent call last):"


def last_traceback(lines: Sequence[str]) -> str:
    """The last traceback, with the message of its exception, which may have several lines; empty if there is none.

    Ranks of a node write to one log, so lines of others may stand between its lines: it ends at the first line after
    its frames that is no part of the message, as far as that can be told.
    """
    plain = [PREFIX.sub("", line) for line in lines]
    begins = [index for index, line in enumerate(plain) if line.startswith(BEGIN)]
    if not begins:
        return ""
    first = begins[-1]
    end = next(
        (index for index in range(first + 1, len(plain)) if plain[index] and not plain[index][0].isspace()), None
    )
    return "\n".join(plain[first : len(plain) if end is None else end + 1])
