"""What is said to whoever asks for a run on this machine what only a cluster does."""

import os
from pathlib import Path

import pytest
from ddpjob_operator.api import BadInputError
from ddpjob_operator.cli.counterparts import refuse
from ddpjob_operator.local import RunDirectory, Runs

RUNNING = {
    "cancel": "let it save and stop with: ddpjob stop mine",
    "suspend": "let it save and stop with: ddpjob stop mine",
    "resume": "process {pid} is running it",
    "scale": (
        "to change its size, stop it with: ddpjob stop mine; then edit nodes in a.yaml, and run: ddpjob run a.yaml"
    ),
}
IDLE = {
    "cancel": "no ddpjob run is in charge of it now; remove it with: ddpjob rm mine",
    "suspend": "no ddpjob run is in charge of it now; let it go on with: ddpjob run --resume mine",
    "resume": "let it go on with: ddpjob run --resume mine",
    "scale": "to change its size, edit nodes in a.yaml, and run: ddpjob run a.yaml",
}


def refused(run: RunDirectory, command: str) -> str:
    with pytest.raises(BadInputError) as error:
        refuse(Runs(run.root.parent), "mine", command)
    return str(error.value).partition("not on a cluster; ")[2]


@pytest.mark.parametrize("command", RUNNING)
def test_what_to_do_instead_depends_on_whether_it_runs(command: str, tmp_path: Path) -> None:
    run = RunDirectory(tmp_path / "mine")
    run.create()
    run.job_file.touch()
    run.begin(file="a.yaml")
    assert refused(run, command) == IDLE[command]
    lock = run.lock
    assert lock.acquire()
    assert refused(run, command) == RUNNING[command].format(pid=os.getpid())
    lock.release()


def test_a_run_that_has_no_file_is_told_of_none(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path / "mine")
    run.create()
    run.job_file.touch()
    run.begin(program="train.py")
    instead = "start another run of train.py, with --nodes: this one keeps the nodes that it was started with"
    assert refused(run, "scale") == f"to change its size, {instead}"
