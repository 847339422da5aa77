"""What a local run keeps."""

import os
import stat
from pathlib import Path

import pytest
from ddpjob_operator.api import BadInputError
from ddpjob_operator.local import RunDirectory, container


def test_a_run_has_one_secret_that_nobody_else_can_read(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    run.create()
    run.make_secret()
    (file,) = run.secrets.iterdir()
    made = file.read_text()
    assert len(bytes.fromhex(made)) == 32
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    run.make_secret()
    assert file.read_text() == made, "the next `ddpjob run` goes on with it"


def test_who_was_killed_while_it_made_the_secret_leaves_none(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    run.create()
    run.secrets.mkdir()
    (run.secrets / ".secret").touch(0o600)
    run.make_secret()
    assert [file.name for file in run.secrets.iterdir()] == ["secret"]
    assert (run.secrets / "secret").read_text()


def test_nobody_else_can_look_into_what_a_run_writes_whatever_the_umask_says(tmp_path: Path) -> None:
    run, before = RunDirectory(tmp_path / "run"), os.umask(0)
    try:
        run.logs.mkdir(parents=True)  # As an earlier release has made it.
        run.create()
        run.make_secret()
        with container._private(str(run.logs / "node-0.log")) as log:
            log.write(b"x")
    finally:
        os.umask(before)
    kept = (run.pods, run.logs, run.metrics, run.secrets)
    assert {directory.name: oct(stat.S_IMODE(directory.stat().st_mode)) for directory in kept} == dict.fromkeys(
        ("pods", "logs", "metrics", "secrets"), "0o700"
    )
    assert stat.S_IMODE((run.logs / "node-0.log").stat().st_mode) == 0o600


@pytest.mark.parametrize("content", ["{", "[" * 100_000, "[1]", '{"program": 1}', '{"program": null}'])
def test_a_file_of_a_run_that_is_damaged_is_told_with_what_to_do(tmp_path: Path, content: str) -> None:
    run = RunDirectory(tmp_path / "digits")
    assert run.begun == {}
    run.create()
    run.begin(program="train.py")
    assert run.begun == {}, "there is no job yet"
    run.job_file.write_text("{}")
    assert run.begun == {"program": "train.py"}
    (run.root / "begun.json").write_text(content)
    with pytest.raises(BadInputError, match=r"is damaged\. Remove the run with: ddpjob rm digits$"):
        _ = run.begun


def test_code_that_is_only_in_memory_is_written_into_a_directory_of_the_owners(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    for content in (b"1", b"2"):
        run.write_code({"call.py": b"x", "a/b/it.py": content})
    assert stat.S_IMODE(run.code.stat().st_mode) == 0o700
    files = {str(file.relative_to(run.code)): file.read_bytes() for file in run.code.rglob("*.py")}
    assert files == {"call.py": b"x", "a/b/it.py": b"2"}
