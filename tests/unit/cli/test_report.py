"""Which run `ddpjob report` is about."""

from pathlib import Path

import pytest
from ddpjob_operator.cli.report import _directory
from ddpjob_operator.local import RunDirectory


@pytest.mark.parametrize(
    ("given", "found"),
    [(None, "runs/digits"), ("digits", "runs/digits"), ("metrics", "metrics")],
    ids=["the only one", "one by its name, although a directory here has that", "a directory"],
)
def test_a_page_is_about_a_run_or_a_directory(
    given: str | None, found: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    run = RunDirectory(Path("runs/digits"))
    run.create()
    run.job_file.write_text("{}")
    for name in ("digits", "metrics"):
        Path(name).mkdir()
    assert _directory(Path("runs"), given) == Path(found)
