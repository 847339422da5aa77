"""The lives of jobs as the API server's audit log tells them: its times, whoever the controller is."""

import re
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.plant import Plant
from tests.plant.audit import kind, seconds, writes

REFUSED = 400
"""And above: the status of an answer."""
PLAYER = "kwok"
"""The user who says what pods do."""
JOB = re.compile(r"j\d{4}(?=[.-]|$)")
"""All that belongs to a job has a name that begins with the job's."""


@dataclass
class Life:
    """One job."""

    submitted: float = 0.0
    created: list[float] = field(default_factory=list)
    """When its pods were there."""
    played: Counter[str] = field(default_factory=Counter)
    """How often something was said of each pod: that it runs, and that it has ended."""
    ended: float = 0.0
    """When the last pod had."""
    heard: float = 0.0
    """When something was first said of a pod."""
    said: float = 0.0
    """The last write of its status."""
    writes: Counter[str] = field(default_factory=Counter)
    """What its controller asked for by verb and kind, refused or not."""

    @property
    def events(self) -> int:
        """How many there are among them."""
        return self._count(lambda verb, kind: kind == "events" and verb != "delete")

    @property
    def others(self) -> int:
        """All else, deletions apart."""
        return self._count(lambda verb, kind: kind != "events" and not verb.startswith("delete"))

    def _count(self, counts: Callable[[str, str], bool]) -> int:
        return sum(times for what, times in self.writes.items() if counts(*what.split(" ")))


def job_name(number: int) -> str:
    """The name by which its life is found."""
    return f"j{number:04d}"


def lives(plant: Plant, since: int, namespace: str, plural: str, users: frozenset[str]) -> dict[str, Life]:
    """What became since then of jobs of a kind in a namespace, and what the users that look after them wrote."""
    found: defaultdict[str, Life] = defaultdict(Life)
    for event in writes(plant, since, namespace):
        target = event["objectRef"]
        name = target.get("name") or event.get("requestObject", {}).get("metadata", {}).get("generateName", "")
        job = JOB.match(name)
        if job:
            _note(found[job[0]], event, name, plural, users)
    return found


def _note(life: Life, event: dict[str, Any], name: str, plural: str, users: frozenset[str]) -> None:
    user, what, time = event["user"]["username"], f"{event['verb']} {kind(event)}", seconds(event["stageTimestamp"])
    if user in users:
        life.writes[what] += 1
    if event["responseStatus"].get("code", 0) >= REFUSED:
        return
    if user == PLAYER and kind(event) == "pods/status":
        life.played[name] += 1
        life.heard = life.heard or time
        if life.played[name] == 2:
            life.ended = max(life.ended, time)
    elif user in users:
        if what == "create pods":
            life.created.append(time)
        elif kind(event) == f"{plural}/status":
            life.said = time
    elif what == f"create {plural}":
        life.submitted = seconds(event["requestReceivedTimestamp"])
