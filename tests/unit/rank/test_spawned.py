"""What a process spawns, by whatever Python."""

import os
import subprocess
import sys
import venv
from functools import partial
from pathlib import Path

import pytest
from ddpjob_rank.reporting import spawned

PARENT = """
import multiprocessing, os, sys
from ddpjob_rank.reporting import spawned
spawned.install()
if sys.argv[1] != sys.executable:
    os.environ.pop("PYTHONPATH", None)  # Else it would have ours all the same.
multiprocessing.set_executable(sys.argv[1])
spawn = multiprocessing.get_context("spawn")
process = spawn.Process(target=exec, args=("import sys; print('ddpjob_rank.reporting.spawned' in sys.modules)",))
process.start()
process.join()
sys.exit(process.exitcode)
"""


def spawned_by(python: str | Path) -> str:
    """Whether what this Python runs begins here, as it says itself."""
    env = os.environ | {"DDPJOB_HEARTBEAT": "any"}
    done = subprocess.run(
        [sys.executable, "-c", PARENT, python], env=env, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_what_is_spawned_begins_here_and_goes_on_without_where_its_python_has_nothing_of_ours(tmp_path: Path) -> None:
    venv.create(tmp_path, symlinks=True)
    assert spawned_by(sys.executable) == "True\n"
    assert spawned_by(tmp_path / "bin" / "python") == "False\n"


def test_a_spawned_process_is_observed_in_all_ways_and_so_are_those_that_it_spawns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun: list[str] = []
    observers = ("steps_seen", "evaluations_seen", "bars_seen", "hugging_face")
    for name in observers:
        monkeypatch.setattr(getattr(spawned, name), "install", partial(begun.append, name))
    monkeypatch.setattr(spawned, "install", partial(begun.append, "those that it spawns"))
    spawned.begin()
    assert begun == [*observers, "those that it spawns"]
