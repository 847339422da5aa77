"""What a process spawns, by whatever Python."""

import os
import subprocess
import sys
import venv
from pathlib import Path

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
