"""The stand-in for a pod's container, by itself."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from ddpjob_operator.local import container

from tests.support.cgroups import GREEDY, small_cgroup, within
from tests.support.waiting import patience, wait_for


def start(directory: Path, *argv: str, cgroup: Path | None = None, **files: object) -> subprocess.Popen[bytes]:
    """A container that runs a command."""
    process = {"argv": argv, "env": dict(os.environ), "cwd": str(directory), "log": str(directory / "log")}
    for name, content in {"process": process, **files}.items():
        (directory / f"{name}.json").write_text(json.dumps(content))
    command = [sys.executable, "-I", "-S", container.__file__, str(directory)]
    return subprocess.Popen(within(cgroup, *command) if cgroup else command, stdout=subprocess.PIPE)


def end(directory: Path, started: subprocess.Popen[bytes]) -> dict[str, object]:
    """How the command ended, by the container's record."""
    started.communicate(timeout=patience(60))
    assert started.returncode == 0
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
    ended = end(tmp_path, start(tmp_path, *argv))
    assert (ended["code"], ended["reason"]) == (code, reason)


@pytest.mark.parametrize(
    ("argv", "code", "reason"),
    [
        ([sys.executable, "-c", GREEDY], 137, "OOMKilled"),
        (["sh", "-c", f"{sys.executable} -c '{GREEDY}'; exit 3"], 3, "Error"),
    ],
    ids=["the main process", "a child, of which the main process may tell"],
)
def test_a_process_that_the_kernel_kills_for_want_of_memory_is_told_from_one_that_somebody_kills(
    tmp_path: Path, argv: list[str], code: int, reason: str
) -> None:
    with small_cgroup() as group:
        ended = end(tmp_path, start(tmp_path, *argv, cgroup=group))
    assert (ended["code"], ended["reason"]) == (code, reason)


def test_a_pod_that_was_deleted_before_its_process_could_be_told_ends_all_the_same(tmp_path: Path) -> None:
    ended = end(tmp_path, start(tmp_path, "sleep", "1000", delete={"gracePeriodSeconds": 0}))
    assert ended["code"] in {143, 137}


def test_a_process_that_is_deaf_to_sigterm_is_killed_when_its_grace_is_over(tmp_path: Path) -> None:
    started = start(tmp_path, "sh", "-c", "trap '' TERM; echo deaf; sleep 1000")
    log = tmp_path / "log"
    wait_for("its word", lambda: log.exists() and "deaf" in log.read_text())
    (tmp_path / "delete.json").write_text(json.dumps({"gracePeriodSeconds": 1}))
    started.send_signal(signal.SIGTERM)
    assert end(tmp_path, started)["code"] == 137
