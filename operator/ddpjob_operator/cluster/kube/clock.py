"""The API servers' time: pods carry their dates, and by another clock one that is ending could seem to be lost.

A steady clock counts on from a server's date, so nothing happens when this machine's clock is set. Several servers
may answer, and one of them may be wrong: the time is that of most connections, and what cannot be undone waits until
it is due by each date that was heard over the last minutes.
"""

import logging
import math
import sys
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from functools import lru_cache
from typing import NamedTuple

TOLERANCE = timedelta(seconds=2)
"""Each of several API servers has its own clock; a smaller difference is not worth a step."""
SLEW = timedelta(seconds=5)
"""So much may be the drift of one clock; what differs by more has been set, or is another one."""

A_SECOND = timedelta(seconds=1)
"""An answer's date is in whole seconds."""

VOTING_SECONDS = 30.0
"""For so long after an answer its connection counts, where servers disagree."""
KEPT_SECONDS = 300.0
"""For so long after an answer its date is taken into account."""
MOST_CLOCKS = 16
"""A server that says something else each time must not fill the memory."""
MANY_CONNECTIONS = 64
"""From so many on those that no longer count are forgotten."""
YEARS = range(2000, 3000)
"""A date of another year is none: nobody could count on from there."""

logger = logging.getLogger(__name__)


def _boot_time() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


steady: Callable[[], float] = _boot_time if sys.platform == "linux" else time.monotonic
"""Seconds on a clock that nobody sets. On Linux it keeps running while the machine is suspended, like the API
server's; `time.monotonic`, which asyncio's timers use, then stands still."""


class Reading(NamedTuple):
    """The time, and how certain it is."""

    now: datetime
    """By the clock of most servers."""
    earliest: datetime
    """By the clock that is most behind, of those that were heard over the last minutes."""
    settles_at: datetime
    """Until when nothing that cannot be undone may follow from the time."""


@dataclass(eq=False, slots=True)
class _Server:
    """A clock that answers were dated by: servers that agree are one."""

    zero: datetime
    """Its time when the steady clock showed 0."""
    since: float
    """When it was first heard of, by the steady clock,"""
    last: float
    """and when it was last."""
    connections: dict[Hashable, float] = field(default_factory=dict)
    """When it was last heard, by connection."""

    def may_have_said(self, said: datetime, asked: float, heard: float) -> bool:
        """Whether that is its time at any moment between question and answer."""
        first, last = self.zero + timedelta(seconds=asked), self.zero + timedelta(seconds=heard)
        return first - A_SECOND - TOLERANCE <= said <= last + TOLERANCE

    def hears(self, connection: Hashable, heard: float) -> None:
        """An answer came by this connection."""
        if connection not in self.connections and len(self.connections) >= MANY_CONNECTIONS:
            self.connections = {one: at for one, at in self.connections.items() if heard - at <= VOTING_SECONDS}
        self.connections[connection] = self.last = heard

    def votes(self, heard: float) -> int:
        """How many connections speak for it."""
        return sum(heard - at <= VOTING_SECONDS for at in self.connections.values())


class Clock:
    """Goes by this machine's clock until an answer says otherwise."""

    def __init__(self, settling_seconds: float = 0.0) -> None:
        """`settling_seconds` is for how long nothing is certain after a start or a step."""
        self._settling = settling_seconds
        self._began = steady()
        self._own = datetime.now(UTC) - timedelta(seconds=self._began)
        self._believed = _Server(self._own, self._began, self._began)
        self._others: list[_Server] = []
        self._warned = -math.inf

    def now(self) -> datetime:
        """The time."""
        return self._believed.zero + timedelta(seconds=steady())

    def read(self) -> Reading:
        """The time, and how certain it is."""
        count, believed = steady(), self._believed
        # What is believed counts also while nothing is heard of it: else whoever answers next would be alone.
        zeros = (believed.zero, *(one.zero for one in self._others if count - one.last <= KEPT_SECONDS))
        settled = max(self._began, believed.since) + self._settling
        return Reading(
            now=believed.zero + timedelta(seconds=count),
            earliest=min(zeros) + timedelta(seconds=count),
            settles_at=believed.zero + timedelta(seconds=settled),
        )

    def hears(self, date: str | None, asked: float, connection: Hashable = None) -> None:
        """An answer has just arrived by a connection to a question asked when the steady clock showed this.

        Its date lies in between.
        """
        said, heard = _read(date or ""), steady()
        if said is None:
            return
        server = self._of(said, asked, heard)
        server.hears(connection, heard)
        if server is not self._believed and self._trust(server, heard) > self._trust(self._believed, heard):
            self._believe(server)

    def _of(self, said: datetime, asked: float, heard: float) -> _Server:
        """Whose date it is."""
        known = (self._believed, *self._others)
        server = next((one for one in known if one.may_have_said(said, asked, heard)), None)
        if server is not None:
            return server
        server = _Server(said + A_SECOND / 2 - timedelta(seconds=heard), heard, heard)
        self._warn_of(server, heard)
        recent = sorted((one for one in self._others if heard - one.last <= KEPT_SECONDS), key=lambda one: one.last)
        self._others = [*recent[-MOST_CLOCKS + 1 :], server]
        return server

    def _trust(self, server: _Server, heard: float) -> tuple[int, bool]:
        """How many connections speak for it, and whether this machine's own clock does, which counts as one of them.

        By itself it counts for nothing: only beside a server that was heard lately.
        """
        own = (
            abs(server.zero - self._own) <= SLEW and bool(server.connections) and heard - server.last <= KEPT_SECONDS
        )
        return server.votes(heard) + own, own

    def _believe(self, server: _Server) -> None:
        former, self._believed = self._believed, server
        self._others = [one for one in (former, *self._others) if one is not server and one.connections]
        if abs(server.zero - former.zero) <= SLEW:
            server.since = min(server.since, former.since)
        else:
            seconds = (server.zero - former.zero).total_seconds()
            logger.warning("the time is set by %+.0f s, to that of the API server", seconds)

    def _warn_of(self, server: _Server, heard: float) -> None:
        """Says that servers disagree, once in a while."""
        apart = server.zero - self._believed.zero
        if not self._believed.connections or abs(apart) <= SLEW or heard - self._warned < KEPT_SECONDS:
            return
        self._warned = heard
        logger.warning(
            "the clocks of the API servers differ by %.0f s: deadlines and the like wait for the one that is behind",
            abs(apart.total_seconds()),
        )


@lru_cache(maxsize=2)  # A hundred answers may come in one second, with one date.
def _read(date: str) -> datetime | None:
    try:
        said = parsedate_to_datetime(date)
        known = said.tzinfo is not None and said.year in YEARS  # "-0000": its sender does not know the time zone.
        return said.astimezone(UTC) if known else None
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
