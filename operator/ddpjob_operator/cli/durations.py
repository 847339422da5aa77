"""Reads durations in kubectl's notation."""

import re

UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
"""Seconds in each unit."""
PART = re.compile(r"(\d{1,12}+(?:\.\d{1,12}+)?)(ms|h|m|s)")
DURATION = re.compile(rf"(?:{PART.pattern})+")


def seconds_of(text: str) -> float:
    """The seconds of a duration such as `90s`, `5m` or `1h30m`.

    Raises:
        ValueError: `text` is no duration. The message says so.
    """
    if not DURATION.fullmatch(text):
        raise ValueError(f"{text} is not a duration, such as 90s, 5m or 1h30m")
    return sum(float(number) * UNITS[unit] for number, unit in PART.findall(text))
