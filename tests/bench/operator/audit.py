"""The lives of jobs as the API server's audit log tells them: its times, whoever the controller is."""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from tests.plant import Plant

READS = {"get", "list", "watch"}
NO_WRITES = {"leases", "selfsubjectaccessreviews", "subjectaccessreviews", "tokenreviews"}
"""What is written for other reasons than jobs, or not kept at all."""
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


@dataclass
class Record:
    """What happened in a namespace since a moment."""

    lives: defaultdict[str, Life]
    others: Counter[str]
    """The controller's writes to nothing that belongs to a job."""

    def writes(self, *, events: bool = False) -> list[int]:
        """The writes of each job, deletions apart: its events, or all else."""
        return [
            sum(count for what, count in life.writes.items() if _counts(what) and ("events" in what) == events)
            for life in self.lives.values()
        ]


def _counts(what: str) -> bool:
    return not what.startswith("delete")


def job_name(number: int) -> str:
    """The name by which its life is found."""
    return f"j{number:04d}"


def position(plant: Plant) -> int:
    """From here on is what comes next."""
    return plant.audit_log.stat().st_size


def record(plant: Plant, since: int, namespace: str, plural: str, users: frozenset[str]) -> Record:
    """What was done in a namespace to jobs of a kind, and by the users that look after them."""
    found = Record(defaultdict(Life), Counter())
    for event in events(plant, since, namespace):
        if event["responseStatus"].get("code", 0) < 400:
            _note(found, event, plural, users)
    return found


def events(plant: Plant, since: int, namespace: str | None) -> Iterator[dict[str, Any]]:
    """All writes in a namespace, or in all."""
    mark = f'"namespace":"{namespace}"'.encode() if namespace else b""
    with plant.audit_log.open("rb") as log:
        log.seek(since)
        for line in log:
            if mark in line and line.endswith(b"\n"):
                event = json.loads(line)
                if event["verb"] not in READS and event.get("objectRef", {}).get("resource") not in NO_WRITES:
                    yield event


def _note(found: Record, event: dict[str, Any], plural: str, users: frozenset[str]) -> None:
    target, user, time = event["objectRef"], event["user"]["username"], seconds(event["stageTimestamp"])
    what = "/".join(part for part in (target["resource"], target.get("subresource")) if part)
    name = target.get("name") or event.get("requestObject", {}).get("metadata", {}).get("generateName", "")
    job = JOB.match(name)
    if job is None:
        if user in users:
            found.others[f"{event['verb']} {what}"] += 1
        return
    life = found.lives[job[0]]
    if user == PLAYER and what == "pods/status":
        life.played[name] += 1
        life.heard = life.heard or time
        if life.played[name] == 2:
            life.ended = max(life.ended, time)
    elif user in users:
        life.writes[f"{event['verb']} {what}"] += 1
        if what == "pods" and event["verb"] == "create":
            life.created.append(time)
        elif what == f"{plural}/status":
            life.said = time
    elif what == plural and event["verb"] == "create":
        life.submitted = seconds(event["requestReceivedTimestamp"])


def seconds(time: str) -> float:
    """Since 1970, of the log's microseconds."""
    return datetime.fromisoformat(time).timestamp()
