"""The part of a restart rule that names exit codes."""

from typing import Any


def among(*codes: int) -> dict[str, Any]:
    """Matches any of these exit codes."""
    return {"operator": "In", "values": [*codes]}


def other_than(*codes: int) -> dict[str, Any]:
    """Matches all exit codes except these."""
    return {"operator": "NotIn", "values": [*codes]}
