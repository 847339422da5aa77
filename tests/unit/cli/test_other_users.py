"""What another user of the machine may not look at: one line for each command, and nothing done."""

import fcntl
import os
import pwd
import shlex
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import Mock

import ddpjob_operator.cli.cluster
import ddpjob_operator.report  # noqa: F401  Imported by root: Python itself may be closed to others.
import psutil
import pytest
from ddpjob_operator.cli.arguments import parse
from ddpjob_operator.cli.commands import call
from ddpjob_operator.local import RunDirectory, register

from tests.unit.engine.builders import a_job

KUBECONFIG = """
current-context: here
contexts: [{name: here, context: {cluster: c}}]
clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]
"""
STRANGER = 65534


@contextmanager
def as_another_user() -> Iterator[None]:
    """Root reads everything, whoever owns it; others are kept out by the files' modes."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(STRANGER)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture(autouse=True)
def theirs(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory with a run, scripts and files of its owner, each of which is closed to others."""
    with tempfile.TemporaryDirectory() as place:  # tmp_path is below a directory that is closed itself.
        here = Path(place)
        monkeypatch.chdir(here)
        monkeypatch.setenv("XDG_STATE_HOME", str(here / "state"))
        monkeypatch.setenv("KUBECONFIG", str(here / "kube"))
        (here / "kube").write_text(KUBECONFIG)
        run = RunDirectory(here / "ddpjob-runs" / "train")
        run.create()
        run.save(a_job().snapshot.job)
        run.begin(program="train.py")
        register(run)
        for name in ("train.py", "job.yaml", "locked/train.py", "locked/kube"):
            (here / name).parent.mkdir(exist_ok=True)
            (here / name).write_text("")
        closed = [
            *(here / name for name in ("train.py", "job.yaml", "locked")),
            *(run.job_file, run.lock_file, run.root / "begun.json"),
        ]
        for file in closed:
            file.chmod(0)
        for open_ in (here, *(here / "state").rglob("*")):
            open_.chmod(0o755)
        yield here
        for file in closed:
            file.chmod(0o700)


@pytest.mark.parametrize(
    ("words", "file"),
    [
        ("status --local", "ddpjob-runs/train/job.json"),
        ("status train --local", "ddpjob-runs/train/job.json"),
        ("status -w --local", "ddpjob-runs/train/job.json"),
        ("ls", "{here}/ddpjob-runs/train/job.json"),
        ("logs train --local", "ddpjob-runs/train/job.json"),
        ("report train", "ddpjob-runs/train/job.json"),
        ("report ddpjob-runs/train", "ddpjob-runs/train/job.json"),
        ("rm train", "ddpjob-runs/train/lock"),
        ("delete train --local", "ddpjob-runs/train/lock"),
        ("stop train", "ddpjob-runs/train/lock"),
        ("run --resume train", "ddpjob-runs/train/job.json"),
        ("run train.py", "train.py"),
        ("run locked/train.py", "locked/train.py"),
        ("run -m train --checkpoint locked/x", "locked/x"),
        ("init train.py", "train.py"),
        ("submit train.py", "train.py"),
        ("submit locked/train.py", "locked/train.py"),
        ("submit train.py --kubeconfig locked/kube", "locked/kube"),
    ],
)
def test_what_is_another_users_is_named_with_its_owner(
    words: str, file: str, theirs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with as_another_user():
        code = call(parse(shlex.split(words)))
    whose = f"; it belongs to {pwd.getpwuid(0).pw_name}" if os.geteuid() == 0 else ""
    said = capsys.readouterr()
    assert (code, said.out) == (2, "")
    assert said.err == f"error: Permission denied: {file.format(here=theirs)}{whose}\n"


@pytest.mark.parametrize("command", ["run", "validate", "submit"])
def test_a_yaml_file_that_may_not_be_read_is_named(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with as_another_user():
        assert call(parse([command, "job.yaml"])) == 2
    assert capsys.readouterr().err == "error: cannot read job.yaml: Permission denied\n"


def test_a_run_that_may_not_be_read_hides_no_others(theirs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mine = RunDirectory(theirs / "ddpjob-runs" / "mine")
    mine.create()
    mine.save(a_job().snapshot.job)
    mine.job_file.chmod(0o644)
    with as_another_user():
        assert call(parse(["ls"])) == 0
    said = capsys.readouterr()
    assert len(said.out.splitlines()) == 2
    assert said.err.startswith(f"warning: Permission denied: {theirs}/ddpjob-runs/train/job.json")


def test_a_run_in_a_directory_that_was_closed_since_is_told_and_not_forgotten(
    theirs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = RunDirectory(theirs / "locked" / "train")
    (theirs / "locked").chmod(0o700)
    run.create()
    run.save(a_job().snapshot.job)
    register(run)
    (theirs / "locked").chmod(0)
    elsewhere = theirs / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    with as_another_user():
        assert call(parse(["ls"])) == 2
    said = capsys.readouterr().err
    assert said.count("error: ") == len(said.splitlines()) == 2
    for place in ("ddpjob-runs", "locked"):
        assert f"error: Permission denied: {theirs}/{place}/train/job.json" in said


def test_a_kubeconfig_that_may_not_be_looked_at_keeps_nobody_from_a_run_here(
    theirs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(theirs / "locked" / "kube"))
    with as_another_user():
        assert call(parse(["version"])) == 0
        assert call(parse(["status", "nothing"])) == 2
    assert "no run named nothing under ddpjob-runs" in capsys.readouterr().err


@pytest.mark.timeout(20)
def test_a_run_that_has_not_said_yet_which_process_it_is_keeps_nobody_waiting(
    theirs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = RunDirectory(theirs / "ddpjob-runs" / "train")
    run.lock_file.chmod(0o644)
    run.job_file.chmod(0o644)
    with run.lock_file.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert call(parse(["stop", "train"])) == 2
    assert "train was started again meanwhile" in capsys.readouterr().err


def test_who_may_not_stop_a_run_is_told_who_can(
    theirs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = RunDirectory(theirs / "ddpjob-runs" / "train")
    run.lock_file.chmod(0o644)
    lock = run.lock
    assert lock.acquire()
    monkeypatch.setattr(psutil.Process, "open_files", Mock(side_effect=psutil.AccessDenied))
    assert call(parse(["stop", "train"])) == 2
    lock.release()
    said = f"lock is held by process {os.getpid()} of another user, machine or container: stop it there\n"
    assert capsys.readouterr().err.endswith(said)
