"""What continuous integration runs of others is named by its commit, and may do no more than read."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.y*ml"))
USES = re.compile(r"^ *- uses: (\S+)(.*)$", re.MULTILINE)
PINNED = re.compile(r"[\w./-]+@[0-9a-f]{40}  # v\d+\.\d+\.\d+")


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda file: file.stem)
class TestWorkflow:
    def test_each_action_is_named_by_its_commit_and_says_its_version(self, file: Path) -> None:
        used = ["".join(found) for found in USES.findall(file.read_text(encoding="utf-8"))]
        assert used
        assert [one for one in used if not PINNED.fullmatch(one)] == []

    def test_it_may_only_read(self, file: Path) -> None:
        workflow = yaml.safe_load(file.read_text(encoding="utf-8"))
        jobs: dict[str, Any] = workflow["jobs"]
        assert workflow["permissions"] == {"contents": "read"}
        assert [job for job in jobs.values() if "permissions" in job] == []

    def test_no_step_after_it_has_the_token_of_the_checkout(self, file: Path) -> None:
        jobs: dict[str, Any] = yaml.safe_load(file.read_text(encoding="utf-8"))["jobs"]
        steps = [step for job in jobs.values() for step in job["steps"]]
        checkouts = [step for step in steps if step.get("uses", "").startswith("actions/checkout@")]
        assert checkouts
        assert all(step["with"]["persist-credentials"] is False for step in checkouts)


def test_an_action_is_the_same_wherever_it_is_used() -> None:
    used = {one for file in WORKFLOWS for one, _ in USES.findall(file.read_text(encoding="utf-8"))}
    assert len({one.partition("@")[0] for one in used}) == len(used)
