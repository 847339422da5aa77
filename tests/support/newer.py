"""Parts of a status that a newer operator has written, and that are unknown to this version."""

from typing import Any

TOMORROW: dict[str, Any] = {
    "type": "Tomorrow",
    "status": "True",
    "reason": "WhoKnows",
    "message": "It will be",
    "lastTransitionTime": "2026-01-01T12:00:00.000000Z",
    "observedGeneration": 1,
}
"""A condition of an unknown type."""
