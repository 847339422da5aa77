"""Jobs for tests of what a screen shows."""

from datetime import UTC, datetime, timedelta
from typing import Any

from ddpjob_operator.api import DDPJob

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def moment(seconds: float) -> str:
    """So many seconds from now."""
    return (NOW + timedelta(seconds=seconds)).isoformat()


def condition(kind: str, status: str = "True", seconds: float = -30) -> dict[str, Any]:
    said = {"type": kind, "status": status, "reason": kind, "message": kind, "observedGeneration": 1}
    return {**said, "lastTransitionTime": moment(seconds)}


def job_with(status: dict[str, Any], **spec: Any) -> DDPJob:
    template = {"spec": {"containers": [{"name": "trainer", "image": "any"}]}}
    metadata = {"name": "digits", "namespace": "team", "uid": "u"}
    return DDPJob.from_dict({"metadata": metadata, "spec": {"template": template, **spec}, "status": status})
