"""The dates of answers, as of several API servers behind one address, of which one has a wrong clock."""

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from enum import StrEnum
from typing import Any


class Wrong(StrEnum):
    """Which answers come from the server that is wrong."""

    ANSWERS = "every second answer"
    CONNECTIONS = "every third connection"
    ALL = "all answers for a while"


@dataclass
class Dates:
    """What time it is by the servers that answer."""

    which: Wrong
    error: timedelta
    """By how much the one is wrong."""
    now: Callable[[], float]
    """Seconds on a steady clock."""
    seconds: float = math.inf
    """For so long it is, once it has answered."""
    last: float = math.inf
    """The last process of the operator that meets it."""
    told: int = 0
    """How often it has answered."""

    def __post_init__(self) -> None:
        self._until = math.inf
        self._connections: dict[Any, int] = {}
        self._answers: Counter[Any] = Counter()

    def of(self, connection: Any, process: int) -> str:
        """The date of an answer that goes by this connection to a process."""
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
