"""The points of a gang's curve that GET /curve shows while the gang runs, wherever else they are recorded."""

import json
from dataclasses import dataclass, replace

from ddpjob_rank.recording.event import Event
from ddpjob_rank.recording.json_lines import fields_of

MOST = 1000
MOST_BYTES = 1 << 20
"""How many records are kept, and how long they may be together."""
OF_A_START = ("seen", "counted")
"""What is shown of a start. What else is recorded of it, such as versions, is not needed for a curve."""


@dataclass(frozen=True, slots=True)
class _Kept:
    number: int
    line: str
    starts: bool


class KeptPoints:
    """Records of a curve, in memory. If there are too many, only every second, fourth, … of the older ones is kept.

    Example:
        >>> points = KeptPoints()
        >>> points.add(Event("progress", 0.0, 1, 7, {"loss": 0.5}))
        >>> points.document()
        '{"last":1,"records":[{"time":"1970-01-01T00:00:00.000Z","event":"progress","attempt":1,"step":7,"loss":0.5}]}'
    """

    def __init__(self) -> None:
        self.last = 0
        """The number of the last record; records are numbered from 1."""
        self._kept: list[_Kept] = []
        self._every = 1

    def add(self, event: Event) -> None:
        """Takes a record."""
        starts = event.word == "started"
        if starts:
            event = replace(event, values={name: event.values[name] for name in OF_A_START if name in event.values})
        self.last += 1
        line = json.dumps(fields_of(event), default=str, separators=(",", ":"))
        self._kept.append(_Kept(self.last, line, starts))
        if not self._fit(1):
            self._thin()

    def document(self, after: int = 0) -> str:
        """The records after the number `after`, and the number of the last one, as JSON."""
        records = ",".join(one.line for one in self._kept if one.number > after)
        return f'{{"last":{self.last},"records":[{records}]}}'

    def _fit(self, share: float) -> bool:
        """Whether the records take no more than a share of their place."""
        return len(self._kept) <= share * MOST and sum(len(one.line) for one in self._kept) <= share * MOST_BYTES

    def _thin(self) -> None:
        """Makes room for as many records again. The points that stay are evenly spread, whenever they have come."""
        starts = [one for one in self._kept if one.starts]
        first = starts[-MOST // 4].number if len(starts) > MOST // 4 else 0
        self._kept = [one for one in self._kept if one.number >= first]
        while True:
            self._kept = [one for one in self._kept if one.starts or one.number % self._every == 0]
            if self._fit(1 / 2) or self._every > self.last:
                return
            self._every *= 2
