"""Watches the objects of a kind in a cluster."""

import math
import time
from collections.abc import Iterator

from ddpjob_operator.text.foreign_json import parsed_object

from .cluster import Cluster, Document, Query
from .errors import RefusedError, UnreachableError

WATCH_SECONDS = 240
"""The server ends a watch after this long. All objects are then listed again, in case the watch missed changes."""
OUTAGE_SECONDS = 600.0
"""How long the API server may be unreachable before a watch fails."""
RETRY_SECONDS = 1.0
GONE = 410


def watch(
    cluster: Cluster, path: str, query: Query, outage_seconds: float = OUTAGE_SECONDS
) -> Iterator[dict[str, Document]]:
    """Yields all objects by uid, now and after every change. Never ends.

    Raises:
        UnreachableError: the first request is not answered, or no later request was answered for `outage_seconds`.
        RefusedError: the user may not list or watch the objects.
    """
    answered, away_since = False, math.inf
    while True:
        try:
            listed = cluster.call("GET", path, query=query)
            answered, away_since, listed_at = True, math.inf, time.monotonic()
            found = {item["metadata"]["uid"]: item for item in listed["items"]}
            yield found
            for change in _changes(cluster, path, listed["metadata"]["resourceVersion"], query):
                _apply(found, change)
                yield found
            if time.monotonic() < listed_at + RETRY_SECONDS:  # Pause, because a proxy may end each watch immediately.
                time.sleep(RETRY_SECONDS)
        except UnreachableError:
            away_since = min(away_since, time.monotonic())
            if not answered or time.monotonic() - away_since > outage_seconds:
                raise
            time.sleep(RETRY_SECONDS)


def _changes(cluster: Cluster, path: str, version: str, query: Query) -> Iterator[Document]:
    """Yields changes after a resource version, until the server or the network ends the watch."""
    wanted = {**query, "watch": "true", "resourceVersion": version, "timeoutSeconds": str(WATCH_SECONDS)}
    try:
        for line in cluster.lines(path, wanted, silence_seconds=WATCH_SECONDS + 30):
            change = parsed_object(line)  # None if the line is incomplete.
            if change is None or change["type"] == "ERROR":
                return
            yield change
    except RefusedError as error:
        if error.code != GONE:
            raise


def _apply(found: dict[str, Document], change: Document) -> None:
    item = change["object"]
    if change["type"] == "DELETED":
        found.pop(item["metadata"]["uid"], None)
    else:
        found[item["metadata"]["uid"]] = item
