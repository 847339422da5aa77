"""The exit codes that a restart rule names."""

from typing import Any


def among(*codes: int) -> dict[str, Any]:
    """One of these."""
    return {"operator": "In", "values": [*codes]}


def other_than(*codes: int) -> dict[str, Any]:
    """None of these."""
    return {"operator": "NotIn", "values": [*codes]}
