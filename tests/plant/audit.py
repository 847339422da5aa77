"""Reads the API server's audit log: who wrote what, and when."""

import json
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from .api import Plant

READS = {"get", "list", "watch"}


def position(plant: Plant) -> int:
    """The present end of the audit log. Later events start at this position."""
    return plant.audit_log.stat().st_size


def requests(plant: Plant, since: int = 0, namespace: str | None = None) -> Iterator[dict[str, Any]]:
    """All requests in a namespace, or in all namespaces, since a position. Includes refused requests."""
    mark = f'"namespace":"{namespace}"'.encode() if namespace else b""
    with plant.audit_log.open("rb") as log:
        log.seek(since)
        for line in log:
            if mark in line and line.endswith(b"\n"):
                event = json.loads(line)
                if "objectRef" in event:
                    yield event


def writes(plant: Plant, since: int = 0, namespace: str | None = None) -> Iterator[dict[str, Any]]:
    """The requests that ask for a change."""
    return (event for event in requests(plant, since, namespace) if event["verb"] not in READS)


def kind(event: dict[str, Any]) -> str:
    """What was written: a resource, with its subresource as in `pods/status`."""
    target = event["objectRef"]
    return "/".join(part for part in (target["resource"], target.get("subresource")) if part)


def seconds(time: str) -> float:
    """Converts a time of the log, which has microseconds, to seconds since the epoch."""
    return datetime.fromisoformat(time).timestamp()
