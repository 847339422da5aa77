"""Reads the lives of jobs from the API server's audit log, so that times are comparable between controllers."""

import re
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.plant import Plant
from tests.plant.audit import kind, seconds, writes

REFUSED = 400
"""The HTTP status from which a request counts as refused."""
PLAYER = "kwok"
"""The user that writes the simulated status of pods."""
JOB = re.compile(r"j\d{4}(?=[.-]|$)")
"""The job's name, at the beginning of the name of an object that belongs to the job."""


@dataclass
class Life:
    """The times and requests of one job. Times are in seconds since the epoch."""

    submitted: float = 0.0
    created: list[float] = field(default_factory=list)
    """When each of the job's pods was created."""
    played: Counter[str] = field(default_factory=Counter)
    """How many times the status of each pod was written: once when it runs, and once when it has ended."""
    ended: float = 0.0
    """When the last pod ended."""
    report: float = 0.0
    """When the status of a pod was first written."""
    said: float = 0.0
    """When the job's status was last written."""
    writes: Counter[str] = field(default_factory=Counter)
    """The requests of the job's controller, by verb and kind, including refused requests."""

    @property
    def events(self) -> int:
        """How many of the writes are events."""
        return self._count(lambda verb, kind: kind == "events" and verb != "delete")

    @property
    def others(self) -> int:
        """How many of the writes are neither events nor deletions."""
        return self._count(lambda verb, kind: kind != "events" and not verb.startswith("delete"))

    def _count(self, counts: Callable[[str, str], bool]) -> int:
        return sum(times for what, times in self.writes.items() if counts(*what.split(" ")))


def job_name(number: int) -> str:
    """The name of a job, in the form that `lives` recognizes."""
    return f"j{number:04d}"


def lives(plant: Plant, since: int, namespace: str, plural: str, users: frozenset[str]) -> dict[str, Life]:
    """The lives of a namespace's jobs, by name, since the position `since` in the audit log.

    `plural` is the jobs' resource. `users` are the users of their controllers.
    """
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
        life.report = life.report or time
        if life.played[name] == 2:
            life.ended = max(life.ended, time)
    elif user in users:
        if what == "create pods":
            life.created.append(time)
        elif kind(event) == f"{plural}/status":
            life.said = time
    elif what == f"create {plural}":
        life.submitted = seconds(event["requestReceivedTimestamp"])
