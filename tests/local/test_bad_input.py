"""What a wrong file or a wrong call gets: one clear message, exit code 2, and nothing started."""

import errno
import os
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest
from ddpjob_operator.local.files import Lock

from tests.local.here import BIN, DEADLINE_SECONDS, Here, script
from tests.plant.needs import leave_out
from tests.support.waiting import patience


def test_a_wrong_yaml_gets_all_of_its_errors_at_once_and_starts_nothing(here: Here) -> None:
    file = here.job(
        "wrong",
        *script("pass"),
        nodes=0,
        network={"masterPort": 80},
        template=None,
        container={"env": [{"name": "RANK"}]},
    )
    code, output = here.ddpjob("run", file)
    assert code == 2
    assert output.splitlines() == [
        f"error: {file} is not a valid DDPJob:",
        *output.splitlines()[1:],
    ]
    for said in (
        "spec.nodes: 0 is too small",
        "spec.network.masterPort: 80 is too small",
        "RANK is set by DDPJob itself",
    ):
        assert said in output
    assert not (here.directory / "ddpjob-runs").exists()


def test_a_job_that_needs_a_cluster_says_what_is_missing_here(here: Here) -> None:
    secret = {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "hub", "key": "token"}}}
    file = here.job("secret", *script("print(os.environ['TOKEN'])"), container={"env": [secret]})
    code, output = here.ddpjob("run", file)
    assert code == 2
    assert "variable TOKEN comes from secretKeyRef, which only a cluster has; set TOKEN in your shell" in output
    assert not (here.directory / "ddpjob-runs").exists()
    assert here.ddpjob("run", file, TOKEN="mine")[0] == 0


def test_a_full_disk_is_named_before_anything_is_started(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    full = OSError(errno.ENOSPC, "No space left on device", "ddpjob-runs/full/lock")
    monkeypatch.setattr(Lock, "acquire", Mock(side_effect=full))
    said = "error: No space left on device: ddpjob-runs/full/lock; nothing was started or stopped\n"
    assert here.says("run", here.job("full", *script("pass"))) == (2, said)


def test_logs_of_a_rank_that_is_not_there_say_which_are(here: Here) -> None:
    here.ddpjob("run", here.job("two", *script("print('x')"), nodes=2))
    assert here.says("logs", "two", "--node", "7") == (2, "error: no log of node 7 in attempt 1; there is 0, 1\n")
    assert here.says("logs", "two", "--previous") == (
        2,
        "error: there is no previous attempt; leave out --previous\n",
    )
    assert here.says("logs", "--node", "1") == (0, "[rank 1] x\n")


def test_an_empty_command_and_a_date_that_does_not_exist_are_told_before_anything_starts(here: Here) -> None:
    code, output = here.says("run", here.job("empty"))
    assert (code, "command: is missing" in output) == (2, True), output
    file = here.job("date", *script("pass"))
    file.write_text(file.read_text().replace("image: any", "image: 2024-99-99"))
    code, output = here.says("run", file)
    assert (code, "Traceback" in output) == (2, False), output


def test_a_mount_of_a_volume_that_is_not_there_is_named(here: Here) -> None:
    container = {"volumeMounts": [{"name": "date", "mountPath": "/data"}]}
    pod = {"volumes": [{"name": "data", "emptyDir": {}}]}
    code, output = here.says("run", here.job("mount", *script("pass"), container=container, pod=pod))
    assert code == 2
    assert "volumeMounts[0].name: date is not a volume of the template; it has data" in output


@pytest.mark.parametrize(
    ("place", "why"), [("/proc/nope", "No such file or directory"), ("file/sub", "Not a directory")]
)
def test_a_directory_that_cannot_be_made_is_named_before_anything_is_started(
    here: Here, place: str, why: str
) -> None:
    (here.directory / "file").touch()
    (here.directory / "one.py").touch()
    said = f"error: cannot make the directory {here.directory / place}, which the job's volumes need: {why}\n"
    assert here.says("run", "one.py", "--checkpoint", place) == (2, said)
    assert not (here.directory / "ddpjob-runs").exists()


FULL = """
set -e
cd "$2" && mount -t tmpfs -o size=64k full . && cd "$2"
for place in /tmp /var/tmp
do
  mkdir -p .$place/upper .$place/work
  mount -t overlay -o "lowerdir=$place,upperdir=.$place/upper,workdir=.$place/work" full $place
done
head -c 65536 /dev/zero > /tmp/filled
mount -t tmpfs roomy "$2"
set +e
cd /tmp
"$1/ddpjob" run --run-dir "$2/runs" -- true
echo "exit code $?; made: $(ls "$2")"
"$1/ddpjob-train"
echo "exit code $?"
"""


def test_where_every_temporary_directory_is_full_nothing_is_begun(tmp_path: Path) -> None:
    """What is in them stays: it may be all that runs here."""
    call = ["unshare", "--mount", "sh", "-c", FULL, "sh", BIN, tmp_path]
    if sys.platform != "linux" or subprocess.run([*call[:2], "true"], check=False).returncode:
        leave_out("left out: there is no right to make a mount namespace")
    env = {name: value for name, value in os.environ.items() if name not in {"TMPDIR", "TEMP", "TMP"}}
    seconds = patience(DEADLINE_SECONDS)
    done = subprocess.run(
        call, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True, timeout=seconds
    )
    nowhere = "No usable temporary directory found in ['/tmp', '/var/tmp', '/usr/tmp', '/tmp']"
    advice = "set TMPDIR to a directory of yours that has room"
    assert done.stdout.splitlines() == [
        f"error: cannot lock a port: {nowhere}; {advice}",
        "exit code 2; made: ",
        f"error: {nowhere}: {advice}, or mount an emptyDir at /tmp",
        "exit code 1",
    ]
