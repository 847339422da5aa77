"""The API server's time: pods carry its dates, and by another clock one that is ending could seem to be lost.

A steady clock counts on from the server's date, so nothing happens when this machine's clock is set.
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
"""An answer's date is in whole seconds."""


def _boot_time() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


steady: Callable[[], float] = _boot_time if sys.platform == "linux" else time.monotonic
"""Seconds on a clock that nobody sets. On Linux it keeps running while the machine is suspended, like the API
server's; `time.monotonic`, which asyncio's timers use, then stands still."""


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
