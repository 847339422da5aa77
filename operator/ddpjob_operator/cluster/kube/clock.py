"""The API servers' time, which stamps pods: by another clock, a pod that is ending could seem lost.

The time is a server's date, continued by a steady clock, so that setting this machine's clock has no effect. There
may be several servers, one of which may have a wrong clock. So the time of the server with the most connections is
used, and an action that cannot be undone waits until it is due by every date that was received during the last
minutes.
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
"""Clocks that differ by no more than this count as one: each of several API servers has its own clock."""
SLEW = timedelta(seconds=5)
"""A smaller difference may be the drift of one clock. After a larger one, the clock was set, or it is another
clock."""

A_SECOND = timedelta(seconds=1)
"""The precision of the Date header of an answer."""

VOTING_SECONDS = 30.0
"""For this long after an answer, its connection counts as a vote for the server that sent it, if servers disagree."""
KEPT_SECONDS = 300.0
"""For this long after an answer, the clock of the server that sent it counts for the earliest possible time."""
MOST_CLOCKS = 16
"""How many clocks are kept beside the believed one, so that a server whose date jumps with each answer cannot fill
the memory."""
MANY_CONNECTIONS = 64
"""If a server has this many connections or more, those whose vote has expired are dropped."""
YEARS = range(2000, 3000)
"""The years of valid dates; a date of another year is ignored, because further arithmetic could overflow."""

logger = logging.getLogger(__name__)


def _boot_time() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


steady: Callable[[], float] = _boot_time if sys.platform == "linux" else time.monotonic
"""Seconds on a clock that is never set. On Linux it goes on while the machine is suspended, as the API server's clock
does; `time.monotonic`, which asyncio's timers use, stops during that time."""


class Reading(NamedTuple):
    """The time, and how certain it is."""

    now: datetime
    """The time by the believed clock."""
    earliest: datetime
    """The time by the slowest clock that was heard of during the last minutes."""
    settles_at: datetime
    """Until then, no action that cannot be undone may be based on the time."""


@dataclass(eq=False, slots=True)
class _Server:
    """A server's clock; servers whose dates agree count as one. All floats are seconds of the steady clock."""

    zero: datetime
    """The server's time when the steady clock showed 0."""
    since: float
    """When the first answer of this server came."""
    last: float
    """When its last answer came."""
    connections: dict[Hashable, float] = field(default_factory=dict)
    """When the last answer came, by connection."""

    def fits(self, said: datetime, asked: float, heard: float) -> bool:
        """Whether the date `said` fits this clock at any moment between request (`asked`) and answer (`heard`)."""
        first, last = self.zero + timedelta(seconds=asked), self.zero + timedelta(seconds=heard)
        return first - A_SECOND - TOLERANCE <= said <= last + TOLERANCE

    def note_answer(self, connection: Hashable, heard: float) -> None:
        """Notes an answer that came by this connection."""
        if connection not in self.connections and len(self.connections) >= MANY_CONNECTIONS:
            self.connections = {known: at for known, at in self.connections.items() if heard - at <= VOTING_SECONDS}
        self.connections[connection] = self.last = heard

    def votes(self, heard: float) -> int:
        """The number of connections by which this server has answered in the last VOTING_SECONDS."""
        return sum(heard - at <= VOTING_SECONDS for at in self.connections.values())


class Clock:
    """The API servers' time; until the first answer, this machine's."""

    def __init__(self, settling_seconds: float = 0.0) -> None:
        """`settling_seconds`: how long after a start or a step of the clock the time counts as uncertain."""
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
        elapsed, believed = steady(), self._believed
        # The believed clock counts even if its server has not answered lately: otherwise the next server that answers
        # would decide alone.
        zeros = (believed.zero, *(other.zero for other in self._others if elapsed - other.last <= KEPT_SECONDS))
        settled = max(self._began, believed.since) + self._settling
        return Reading(
            now=believed.zero + timedelta(seconds=elapsed),
            earliest=min(zeros) + timedelta(seconds=elapsed),
            settles_at=believed.zero + timedelta(seconds=settled),
        )

    def note_date(self, date: str | None, asked: float, connection: Hashable = None) -> None:
        """Notes the Date header of an answer that has just arrived by a connection.

        `asked`: what the steady clock showed when the request was sent. The date lies between then and now.
        """
        server_time, heard = _read(date or ""), steady()
        if server_time is None:
            return
        server = self._server_of(server_time, asked, heard)
        server.note_answer(connection, heard)
        if server is not self._believed and self._trust(server, heard) > self._trust(self._believed, heard):
            self._switch_to(server)

    def _server_of(self, said: datetime, asked: float, heard: float) -> _Server:
        """The known server whose clock fits a date, or a new one."""
        known = (self._believed, *self._others)
        server = next((other for other in known if other.fits(said, asked, heard)), None)
        if server is not None:
            return server
        server = _Server(said + A_SECOND / 2 - timedelta(seconds=heard), heard, heard)
        self._warn_about(server, heard)
        recent = sorted(
            (other for other in self._others if heard - other.last <= KEPT_SECONDS), key=lambda other: other.last
        )
        self._others = [*recent[-MOST_CLOCKS + 1 :], server]
        return server

    def _trust(self, server: _Server, heard: float) -> tuple[int, bool]:
        """A server's number of votes, and whether one of them is this machine's own clock.

        This machine votes for a server whose clock agrees with its own, if the server has answered lately.
        """
        own = (
            abs(server.zero - self._own) <= SLEW and bool(server.connections) and heard - server.last <= KEPT_SECONDS
        )
        return server.votes(heard) + own, own

    def _switch_to(self, server: _Server) -> None:
        former, self._believed = self._believed, server
        self._others = [other for other in (former, *self._others) if other is not server and other.connections]
        if abs(server.zero - former.zero) <= SLEW:
            server.since = min(server.since, former.since)
        else:
            seconds = (server.zero - former.zero).total_seconds()
            logger.warning("the time was changed by %+.0f s, to the API server's time", seconds)

    def _warn_about(self, server: _Server, heard: float) -> None:
        """Logs that the servers' clocks differ, at most once in KEPT_SECONDS."""
        apart = server.zero - self._believed.zero
        if not self._believed.connections or abs(apart) <= SLEW or heard - self._warned < KEPT_SECONDS:
            return
        self._warned = heard
        logger.warning(
            "the clocks of the API servers differ by %.0f s: deadlines and timeouts follow the slowest of them",
            abs(apart.total_seconds()),
        )


@lru_cache(maxsize=2)  # A hundred answers may come in one second, all with the same date.
def _read(date: str) -> datetime | None:
    try:
        moment = parsedate_to_datetime(date)
        # The time zone is unknown if it is missing, or "-0000".
        valid = moment.tzinfo is not None and moment.year in YEARS
        return moment.astimezone(UTC) if valid else None
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
