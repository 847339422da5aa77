"""Formats times for the documents of this project."""

from datetime import UTC, datetime


def rfc3339(moment: float, timespec: str = "milliseconds") -> str:
    """Converts seconds since the epoch to a date and time in UTC, as precise as `timespec` of `isoformat` says."""
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec=timespec).replace("+00:00", "Z")
