"""Finds what the rank that failed first had printed last."""

from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ddpjob_operator.api import Incident
from ddpjob_operator.text import one_line

from .printed_records import PrintedLine

if TYPE_CHECKING:
    from ddpjob_operator.report import LastLines

MOST_LINES = 30
LONGEST_LINE = 2000
"""A line is cut off after this many characters."""


def last_lines(lines: Iterable[PrintedLine], incident: Incident, writer: str) -> "LastLines | None":
    """The last lines of the attempt that an incident ended, in the log of its node; None if there are none.

    `writer` is `rank`, or `node` if several ranks share a log.
    """
    from ddpjob_operator.report import LastLines  # noqa: PLC0415  Its libraries may be missing.

    texts = (line.text for line in lines if line.attempt == incident.attempt)
    kept = [one_line(text[:LONGEST_LINE]) for text in deque(texts, maxlen=MOST_LINES)]
    return LastLines(incident.attempt, f"{writer} {incident.node}", kept) if kept else None
