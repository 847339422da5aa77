"""The API servers' time, by which timestamps of pods must be judged. By any other, an ending pod could seem lost.

The time is a server's date, continued by a steady clock, so that setting this machine's clock has no effect. There
may be several servers, and one of them may have a wrong clock. So the time of the server with the most connections is
used, and an action that cannot be undone waits until it is due according to every date received in the last minutes.
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
"""Clocks of several API servers that differ by no more than this count as one clock."""
SLEW = timedelta(seconds=5)
"""The largest difference that may be the drift of one clock. A larger difference means that the clock was set, or
that it is another clock."""

A_SECOND = timedelta(seconds=1)
"""The precision of an answer's Date header."""

VOTING_SECONDS = 30.0
"""How long after an answer its connection counts as a vote for the server that sent it, if servers disagree."""
KEPT_SECONDS = 300.0
"""How long after an answer the server's clock is taken into account for `Reading.earliest`."""
MOST_CLOCKS = 16
"""How many clocks are kept besides the trusted clock, so that a server whose date jumps with each answer cannot fill
the memory."""
MANY_CONNECTIONS = 64
"""If a server has at least this many connections, those whose vote has expired are dropped."""
YEARS = range(2000, 3000)
"""The years of valid dates. Dates of other years are ignored, because arithmetic with them could overflow."""

logger = logging.getLogger(__name__)


def _boot_time() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


steady: Callable[[], float] = _boot_time if sys.platform == "linux" else time.monotonic
"""Returns the seconds of a clock that is never set. On Linux this clock, like the API server's, keeps running while
the machine is suspended, whereas `time.monotonic`, which asyncio's timers use, stops."""


class Reading(NamedTuple):
    """The time, and how certain it is."""

    now: datetime
    """The time by the trusted clock."""
    earliest: datetime
    """The time by the slowest of the clocks whose dates were received during the last minutes."""
    settles_at: datetime
    """Until this moment, no action that cannot be undone may be based on the time."""


@dataclass(eq=False, slots=True)
class _Server:
    """A server's clock. Servers whose dates agree count as one server. All floats are seconds of the steady clock."""

    zero: datetime
    """The server's time when the steady clock showed 0."""
    since: float
    """The time of the first answer from this server."""
    last: float
    """The time of the last answer from this server."""
    connections: dict[Hashable, float] = field(default_factory=dict)
    """The time of the last answer, by connection."""

    def fits(self, said: datetime, asked: float, heard: float) -> bool:
        """Whether this clock showed the date `said` at any moment between request (`asked`) and answer (`heard`)."""
        first, last = self.zero + timedelta(seconds=asked), self.zero + timedelta(seconds=heard)
        return first - A_SECOND - TOLERANCE <= said <= last + TOLERANCE

    def note_answer(self, connection: Hashable, heard: float) -> None:
        """Records an answer that came by this connection."""
        if connection not in self.connections and len(self.connections) >= MANY_CONNECTIONS:
            self.connections = {known: at for known, at in self.connections.items() if heard - at <= VOTING_SECONDS}
        self.connections[connection] = self.last = heard

    def votes(self, heard: float) -> int:
        """Returns the number of connections by which this server has answered in the last VOTING_SECONDS."""
        return sum(heard - at <= VOTING_SECONDS for at in self.connections.values())


class Clock:
    """The API servers' time. Until the first answer it is this machine's time."""

    def __init__(self, settling_seconds: float = 0.0) -> None:
        """`settling_seconds` is how long the time counts as uncertain after a start or a jump of the clock."""
        self._settling = settling_seconds
        self._began = steady()
        self._own = datetime.now(UTC) - timedelta(seconds=self._began)
        self._believed = _Server(self._own, self._began, self._began)
        self._others: list[_Server] = []
        self._warned = -math.inf

    def now(self) -> datetime:
        """Returns the time."""
        return self._believed.zero + timedelta(seconds=steady())

    def read(self) -> Reading:
        """Returns the time, and how certain it is."""
        elapsed, believed = steady(), self._believed
        # The trusted clock counts even if its server has not answered lately. Otherwise the next server that answers
        # would alone determine the time.
        zeros = (believed.zero, *(other.zero for other in self._others if elapsed - other.last <= KEPT_SECONDS))
        settled = max(self._began, believed.since) + self._settling
        return Reading(
            now=believed.zero + timedelta(seconds=elapsed),
            earliest=min(zeros) + timedelta(seconds=elapsed),
            settles_at=believed.zero + timedelta(seconds=settled),
        )

    def note_date(self, date: str | None, asked: float, connection: Hashable = None) -> None:
        """Records the Date header of an answer that has just arrived by a connection.

        `asked` is the steady clock's time when the request was sent. The date lies between then and now.
        """
        server_time, heard = _read(date or ""), steady()
        if server_time is None:
            return
        server = self._server_of(server_time, asked, heard)
        server.note_answer(connection, heard)
        if server is not self._believed and self._trust(server, heard) > self._trust(self._believed, heard):
            self._switch_to(server)

    def _server_of(self, said: datetime, asked: float, heard: float) -> _Server:
        """Returns the known server whose clock fits a date, or a new server."""
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
        """Returns a server's number of votes, and whether this machine's own clock is one of them.

        This machine votes for each server whose clock agrees with its own, if the server has answered lately.
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
        """Logs that the servers' clocks differ, at most once every KEPT_SECONDS."""
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
