"""A command whose output goes to a disk that is full says so in one line."""

import io
import os
import sys
from pathlib import Path

import pytest
from ddpjob_operator.cli.arguments import parse
from ddpjob_operator.cli.commands import call
from ddpjob_operator.local import RunDirectory

from tests.unit.engine.builders import a_job

FULL = Path("/dev/full")

pytestmark = pytest.mark.skipif(not FULL.exists(), reason="only Linux has /dev/full")


@pytest.mark.parametrize("buffering", [1, -1], ids=["by line", "as a whole"])
@pytest.mark.parametrize("words", ["completion bash", "ls", "ls -o json", "version --client"])
def test_what_cannot_be_written_is_an_error_in_one_line(
    words: str, buffering: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with FULL.open("w", buffering) as full:
        monkeypatch.setattr(sys, "stdout", full)
        assert call(parse(words.split())) == 1
    assert capsys.readouterr().err == "error: cannot write: No space left on device\n"


@pytest.mark.parametrize("words", ["run train.py", "run train.py --name mine", "run --fresh train.py", "run -- true"])
def test_a_run_whose_output_cannot_be_written_leaves_nothing_behind(
    words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    Path("train.py").touch()
    with FULL.open("w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        assert call(parse(words.split())) == 1
    assert capsys.readouterr().err == "error: cannot write: No space left on device\n"
    assert [*Path("ddpjob-runs").iterdir()] == []


def test_a_run_whose_output_is_closed_from_the_first_leaves_nothing_behind(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    Path("train.py").touch()
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as closed:
        monkeypatch.setattr(sys, "stdout", closed)
        assert call(parse(["run", "train.py"])) == 1
    assert (capsys.readouterr().err, [*Path("ddpjob-runs").iterdir()]) == ("", [])


def test_a_failed_run_whose_output_cannot_be_written_is_still_found(
    digits: RunDirectory, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    failing = a_job(nodes=1, restart={"maxRestarts": 0}).running().fails(0).settled()
    digits.save(failing.snapshot.job)
    saved = digits.volumes / "last.pt"
    saved.touch()
    with FULL.open("w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        assert call(parse(["run", "--resume", "digits"])) == 1
    assert capsys.readouterr().err == "error: cannot write: No space left on device\n"
    assert (digits.load() is not None, saved.exists()) == (True, True)


def test_a_command_without_any_output_ends_as_one_whose_output_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python has no stdout if its descriptor was closed, as by `ddpjob ls >&-`."""
    monkeypatch.setattr(sys, "stdout", None)
    assert call(parse(["completion", "bash"])) == 0


def test_that_nobody_can_be_told_is_an_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    with FULL.open("w", 1) as full, io.TextIOWrapper(FULL.open("wb", 0), write_through=True) as told:
        monkeypatch.setattr(sys, "stdout", full)
        monkeypatch.setattr(sys, "stderr", told)
        assert call(parse(["completion", "bash"])) == 1
