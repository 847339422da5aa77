"""Times as this project writes them into documents."""

from datetime import UTC, datetime


def rfc3339(moment: float) -> str:
    """Seconds of the epoch as a date and time in UTC, with milliseconds."""
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
