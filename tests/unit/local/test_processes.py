"""What the files in a pod's directory say of it."""

from pathlib import Path

import pytest
from ddpjob_operator.local.processes import LocalPod

UNDER_WAY = {"started.json": '{"pid": 1}'}
RUNS = {"started.json": '{"pid": 1, "main": 2}'}
ENDED = {"exit.json": "{}"}


@pytest.mark.parametrize(
    ("files", "running"),
    [({}, False), (UNDER_WAY, False), (RUNS, True), (RUNS | ENDED, False), (UNDER_WAY | ENDED, False)],
    ids=["made", "under way", "runs", "ended", "could not be started"],
)
def test_a_pod_runs_once_its_process_does(tmp_path: Path, files: dict[str, str], *, running: bool) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert LocalPod(tmp_path).running is running
