"""What the API server's audit log says: who wrote what, and when."""

import json
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from .api import Plant

READS = {"get", "list", "watch"}


def position(plant: Plant) -> int:
    """From here on is what comes next."""
    return plant.audit_log.stat().st_size


def requests(plant: Plant, since: int = 0, namespace: str | None = None) -> Iterator[dict[str, Any]]:
    """All that was asked for in a namespace, or in all, also what was refused."""
    mark = f'"namespace":"{namespace}"'.encode() if namespace else b""
    with plant.audit_log.open("rb") as log:
        log.seek(since)
        for line in log:
            if mark in line and line.endswith(b"\n"):
                event = json.loads(line)
                if "objectRef" in event:
                    yield event


def writes(plant: Plant, since: int = 0, namespace: str | None = None) -> Iterator[dict[str, Any]]:
    """Those that ask for a change."""
    return (event for event in requests(plant, since, namespace) if event["verb"] not in READS)


def kind(event: dict[str, Any]) -> str:
    """What was written: a resource, with its subresource as in `pods/status`."""
    target = event["objectRef"]
    return "/".join(part for part in (target["resource"], target.get("subresource")) if part)


def seconds(time: str) -> float:
    """Since 1970, of the log's microseconds."""
    return datetime.fromisoformat(time).timestamp()
