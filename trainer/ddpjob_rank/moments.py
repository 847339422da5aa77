"""Formats times for the documents of this project."""

from datetime import UTC, datetime


def rfc3339(moment: float) -> str:
    """Converts seconds since the epoch to a date and time in UTC, with milliseconds."""
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
