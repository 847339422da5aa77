"""A run whose directory is on a full disk: why it fails, and how it is stopped and removed."""

import os
import subprocess
import sys
from pathlib import Path

from tests.local.here import BIN, DEADLINE_SECONDS, without_torch
from tests.plant.needs import leave_out
from tests.support.waiting import patience

FILLS = """
with open("big", "wb", buffering=0) as file:
    while True:
        file.write(bytes(65536))
"""

ON_A_FULL_DISK = """
set -e
mkdir "$2/disk" && mount -t tmpfs -o size=3m full "$2/disk" && cd "$2/disk"
mv "$2/fills.py" "$2/torch" .
set +e
"$1/ddpjob" run --name full fills.py > "$2/output" 2>&1 &
until grep -q 'retrying until it can be written' "$2/output"; do sleep 0.1; done
"""
STOPPED = """
"$1/ddpjob" stop full
"$1/ddpjob" rm full
wait
"""
GIVEN_ROOM = """
rm big
wait
"$1/ddpjob" status full --output json
"""


def on_a_full_disk(directory: Path, then: str) -> str:
    """The output of the commands `then`, run once a rank has filled the disk; that of the run is in `output`."""
    if sys.platform != "linux" or subprocess.run(["unshare", "--mount", "true"], check=False).returncode:
        leave_out("left out: there is no right to make a mount namespace")
    without_torch(directory)
    (directory / "fills.py").write_text(FILLS)
    call = ["unshare", "--mount", "sh", "-c", ON_A_FULL_DISK + then, "sh", BIN, directory]
    env = {**os.environ, "XDG_STATE_HOME": str(directory / "state")}
    return subprocess.run(
        call, env=env, capture_output=True, text=True, check=True, timeout=patience(DEADLINE_SECONDS)
    ).stdout


def test_a_run_whose_disk_is_full_can_be_stopped_and_removed(tmp_path: Path) -> None:
    printed = on_a_full_disk(tmp_path, STOPPED)
    assert "full: none of its processes runs any more, but its status cannot be written: No space left on" in printed
    assert "full: removed " in printed
    assert "The ranks go on" not in (tmp_path / "output").read_text()


def test_a_rank_that_fills_the_disk_is_not_started_again(tmp_path: Path) -> None:
    printed = on_a_full_disk(tmp_path, GIVEN_ROOM)
    assert '"cause": "StorageFull"' in printed
    assert "1 node running" in (tmp_path / "output").read_text()
    assert "Restarting" not in (tmp_path / "output").read_text()
