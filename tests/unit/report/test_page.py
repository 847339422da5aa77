"""What the page says of a run whose program records nothing."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from ddpjob_operator.report import find, render

DOCUMENT = {
    "apiVersion": "ddpjob.dev/v1alpha1",
    "kind": "DDPJob",
    "metadata": {"name": "own"},
    "spec": {"template": {"spec": {"containers": [{"name": "trainer", "image": "any", "command": ["python"]}]}}},
}


@pytest.mark.parametrize(
    ("progress", "facts"),
    [
        (
            {"step": 7, "totalSteps": 30, "loss": 0.25},
            ["<dt>Step</dt><dd>7 of 30</dd>", "<dt>Loss</dt><dd>0.25</dd>"],
        ),
        ({"step": 7}, ["<dt>Step</dt><dd>7</dd>"]),
    ],
)
def test_how_far_it_came_is_told_by_its_supervisor(
    progress: dict[str, Any], facts: list[str], tmp_path: Path
) -> None:
    (tmp_path / "job.json").write_text(json.dumps(DOCUMENT | {"status": {"state": "Failed", "progress": progress}}))
    page = render(find(tmp_path), datetime(2026, 1, 1, tzinfo=UTC))
    assert all(fact in page for fact in facts)
    assert "<dt>Loss" in page or "loss" not in progress
    assert "No metrics: ddpjob-train records them" in page
