"""What a local run keeps."""

import stat
from pathlib import Path

from ddpjob_operator.local import RunDirectory


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
