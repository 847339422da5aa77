"""The API server's time: it dates pods, and by another clock one that ends would seem to be lost.

The steady clock counts on from the server's date. So nothing happens when this machine's clock is set.
"""

import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from functools import lru_cache

TOLERANCE = timedelta(seconds=2)
"""Each of several API servers has its own clock; a smaller difference is not worth a step."""

A_SECOND = timedelta(seconds=1)
"""What an answer's date leaves out."""


def _boot_time() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


steady: Callable[[], float] = _boot_time if sys.platform == "linux" else time.monotonic
"""Seconds on a clock that nobody sets. On Linux it goes on while the machine is suspended, like the API server's;
`time.monotonic`, by which asyncio's timers wait, then stands still."""


class Clock:
    """Goes by this machine's clock until an answer says otherwise."""

    def __init__(self) -> None:
        self._zero = datetime.now(UTC) - _steady()

    def now(self) -> datetime:
        """The time."""
        return self._zero + _steady()

    def hears(self, date: str | None, asked: datetime) -> None:
        """An answer to a question asked at this time has just arrived, with this date, which lies in between."""
        said = _read(date or "")
        if said is not None and not asked - A_SECOND - TOLERANCE <= said <= self.now() + TOLERANCE:
            self._zero = said + A_SECOND / 2 - _steady()


@lru_cache(maxsize=2)  # A hundred answers may come in one second, with one date.
def _read(date: str) -> datetime | None:
    try:
        said = parsedate_to_datetime(date)
    except ValueError:
        return None
    return said if said.tzinfo else None  # "-0000": its sender does not know the time zone.


def _steady() -> timedelta:
    return timedelta(seconds=steady())
