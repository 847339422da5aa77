"""Who takes too much memory is told from who is killed by somebody. Real processes in real cgroups."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cgroups import GREEDY, small_cgroup, within
from tests.support.waiting import patience
from tests.training.node import NODE
from tests.training.test_ranks_of_a_node import PRELUDE


@pytest.fixture
def limited() -> Iterator[Path]:
    with small_cgroup() as group:
        yield group


def ended_within(group: Path, *command: str, report: Path, **env: str) -> tuple[int, str, dict[str, object]]:
    """Exit code, output and failure report of a command that runs in a cgroup."""
    done = subprocess.run(
        within(group, *command),
        env={**os.environ, **env, "DDPJOB_TERMINATION_LOG": str(report)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=patience(60),
        check=False,
    )
    return done.returncode, done.stdout, json.loads(report.read_text())


@pytest.mark.parametrize("method", ["warm", "cold"])
def test_a_rank_that_takes_too_much_is_told_from_one_that_somebody_kills(
    method: str, limited: Path, tmp_path: Path
) -> None:
    script = tmp_path / "program.py"
    script.write_text(f"{PRELUDE}\nif rank == '0': time.sleep(60)\n{GREEDY}")
    command = (sys.executable, "-m", "tests.training.node", method, str(script))
    code, said, report = ended_within(limited, *command, report=tmp_path / "report", **NODE)
    message = "killed by SIGKILL: the memory limit was reached"
    assert f"error: rank 1 was {message}" in said
    assert (code, report["cause"], report["exitCode"], report["message"]) == (137, "OutOfMemory", 137, message)


WORKER = f"""
import os, sys
from concurrent.futures import ProcessPoolExecutor
from ddpjob_trainer import main

def greedy():
    {GREEDY.replace(chr(10), chr(10) + "    ")}

def train(config, world, position):
    position.step = 7
    ProcessPoolExecutor(1).submit(greedy).result()

main._train = train
sys.argv = ["ddpjob-train"]
main.main()
"""


def test_a_rank_that_fails_since_a_process_of_its_own_took_too_much_says_so(limited: Path, tmp_path: Path) -> None:
    code, said, report = ended_within(limited, sys.executable, "-c", WORKER, report=tmp_path / "report")
    assert "terminated abruptly" in said
    assert (code, report["cause"], report["step"]) == (1, "OutOfMemory", 7)
