"""The exit codes that a restart rule names."""

from typing import Any


def among(*codes: int) -> dict[str, Any]:
    """A rule for any of these exit codes."""
    return {"operator": "In", "values": [*codes]}


def other_than(*codes: int) -> dict[str, Any]:
    """A rule for all exit codes but these."""
    return {"operator": "NotIn", "values": [*codes]}
