"""The names in a history. They are its index: each has an order, an attempt and a time."""

import re
from dataclasses import dataclass

OBJECT = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?")
"""Matches the names and uids of Kubernetes' objects."""
NODE = re.compile(r"node-(\d{5,9})", re.ASCII)
WRITER = re.compile(r"(\d{13,15})-(\d{5,9})-[0-9a-f]{8}", re.ASCII)
SEGMENT = re.compile(r"(log|events|result)-(\d{6,9})-(\d{5,9})-(\d{13,15})\.jsonl", re.ASCII)

LOG, EVENTS, RESULT = "log", "events", "result"


@dataclass(frozen=True, slots=True, order=True)
class SegmentName:
    """A segment: a file with records of one kind, of one process and of one attempt."""

    began: int
    """When its process began to write, in milliseconds since the epoch."""
    incarnation: int
    folder: str
    """The folder of its process."""
    number: int
    kind: str
    attempt: int
    time: int
    """When its first record was made, in milliseconds since the epoch."""
    path: str


def segment_name(node: str, folder: str, name: str) -> SegmentName | None:
    """The segment with a name in the folder of a process in the folder of a node; None if it is none."""
    writer, segment = WRITER.fullmatch(folder), SEGMENT.fullmatch(name)
    if writer is None or segment is None:
        return None
    kind, number, attempt, time = segment.groups()
    began, incarnation = (int(part) for part in writer.groups())
    path = f"{node}/{folder}/{name}"
    return SegmentName(began, incarnation, folder, int(number), kind, int(attempt), int(time), path)
