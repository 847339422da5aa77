"""The stand-in for a pod's container, by itself."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from ddpjob_operator.local import container


def run(directory: Path, *argv: str, **files: object) -> dict[str, object]:
    """How a pod's process ended, by its own record."""
    process = {"argv": argv, "env": dict(os.environ), "cwd": str(directory), "log": str(directory / "log")}
    for name, content in {"process": process, **files}.items():
        (directory / f"{name}.json").write_text(json.dumps(content))
    command = [sys.executable, "-I", "-S", container.__file__, str(directory)]
    subprocess.run(command, check=True, timeout=60)
    ended: dict[str, object] = json.loads((directory / "exit.json").read_text())
    return ended


@pytest.mark.parametrize(
    ("argv", "code", "reason"),
    [
        (["true"], 0, "Completed"),
        (["sh", "-c", "exit 3"], 3, "Error"),
        (["sh", "-c", "kill -9 $$"], 137, "Error"),
        (["no-such-command"], 128, "StartError"),
    ],
)
def test_an_end_is_recorded_as_a_kubelet_would_report_it(
    tmp_path: Path, argv: list[str], code: int, reason: str
) -> None:
    ended = run(tmp_path, *argv)
    assert (ended["code"], ended["reason"]) == (code, reason)


def test_a_pod_that_was_deleted_before_its_process_could_be_told_ends_all_the_same(tmp_path: Path) -> None:
    ended = run(tmp_path, "sleep", "1000", delete={"gracePeriodSeconds": 0})
    assert ended["code"] in {143, 137}


def test_a_process_that_is_deaf_to_sigterm_is_killed_when_its_grace_is_over(tmp_path: Path) -> None:
    ended = run(tmp_path, "sh", "-c", "trap '' TERM; sleep 1000", delete={"gracePeriodSeconds": 1})
    assert ended["code"] == 137
