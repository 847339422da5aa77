"""The dates of answers from several API servers behind one address, of which one has a wrong clock."""

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from enum import StrEnum
from typing import Any


class Wrong(StrEnum):
    """Which answers come from the server with the wrong clock."""

    ANSWERS = "every second answer"
    CONNECTIONS = "every third connection"
    ALL = "all answers for a while"


@dataclass
class Dates:
    """The dates that the servers send."""

    which: Wrong
    error: timedelta
    """By how much the wrong clock differs."""
    now: Callable[[], float]
    """Seconds on a monotonic clock."""
    seconds: float = math.inf
    """For how long the clock is wrong after that server's first answer."""
    last: float = math.inf
    """The last process of the operator that reaches the wrong server."""
    told: int = 0
    """How many times the wrong server has answered."""

    def __post_init__(self) -> None:
        self._until = math.inf
        self._connections: dict[Any, int] = {}
        self._answers: Counter[Any] = Counter()

    def of(self, connection: Any, process: int) -> str:
        """The date of an answer to a process on this connection."""
        number = self._connections.setdefault(connection, len(self._connections))
        self._answers[connection] += 1
        wrong = {
            Wrong.ANSWERS: (number + self._answers[connection]) % 2 == 1,
            Wrong.CONNECTIONS: number % 3 == 0,
            Wrong.ALL: True,
        }[self.which]
        wrong = wrong and process <= self.last and self.now() < self._until
        if wrong and not self.told:
            self._until = self.now() + self.seconds
        self.told += wrong
        return format_datetime(datetime.now(UTC) + (self.error if wrong else timedelta(0)), usegmt=True)
