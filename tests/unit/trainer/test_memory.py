"""That the kernel killed a process for want of memory, by the files in which it counts."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from ddpjob_trainer import memory

from tests.cgroups import GREEDY, small_cgroup, within
from tests.training.test_ranks_of_a_node import NODE, PRELUDE, SUPERVISOR

V1 = "7:pids:/\n4:memory:/pod/trainer\n0::/\n"
V2 = "0::/pod/trainer\n"
OOM_CONTROL = "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n"
EVENTS = "low 0\nhigh 0\nmax 7\noom 1\noom_kill 3\noom_group_kill 0\n"


@pytest.mark.parametrize(
    ("files", "kills"),
    [
        ({}, 0),
        ({"proc/self/cgroup": V2}, 0),
        ({"proc/self/cgroup": V2, "sys/fs/cgroup/pod/trainer/memory.events": EVENTS}, 3),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.events": EVENTS}, 3),
        ({"proc/self/cgroup": V1, "sys/fs/cgroup/memory/pod/trainer/memory.oom_control": OOM_CONTROL}, 2),
        ({"proc/self/cgroup": V1, "sys/fs/cgroup/memory/memory.oom_control": OOM_CONTROL}, 2),
        ({"proc/self/cgroup": V2, "sys/fs/cgroup/pod/trainer/memory.events": "low 0\n"}, 0),
    ],
    ids=[
        "no cgroups",
        "nobody counts",
        "v2",
        "v2 in a container",
        "v1",
        "v1 in a container that knows its name outside",
        "a kernel that does not count kills",
    ],
)
def test_kills_are_read_from_the_own_cgroup(tmp_path: Path, files: dict[str, str], kills: int) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert memory.kills(tmp_path) == kills


@pytest.mark.parametrize(
    ("text", "lost"),
    [
        ("DataLoader worker (pid 17) is killed by signal: Killed. ", True),
        ("DataLoader worker (pid(s) 17, 18) exited unexpectedly", True),
        ("A process in the process pool was terminated abruptly while the future was running or pending.", True),
        ("DataLoader worker (pid 17) is killed by signal: Segmentation fault. ", False),
        ("shard 3 is empty", False),
    ],
)
def test_an_error_may_tell_that_a_process_was_killed(text: str, *, lost: bool) -> None:
    assert memory.lost_a_process(RuntimeError(text)) is lost


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
        timeout=60,
        check=False,
    )
    return done.returncode, done.stdout, json.loads(report.read_text())


@pytest.mark.parametrize("method", ["warm", "cold"])
def test_a_rank_that_takes_too_much_is_told_from_one_that_somebody_kills(
    method: str, limited: Path, tmp_path: Path
) -> None:
    script = tmp_path / "program.py"
    script.write_text(f"{PRELUDE}\nif rank == '0': time.sleep(60)\n{GREEDY}")
    command = (sys.executable, "-c", SUPERVISOR, method, str(script))
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
