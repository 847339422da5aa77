"""Which run `ddpjob report` is about."""

from pathlib import Path

import pytest
from ddpjob_operator.cli.report import _directory, report
from ddpjob_operator.local import RunDirectory, Runs

from tests.unit.engine.builders import a_job


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
    assert _directory(Runs(Path("runs")), given) == Path(found)


def test_a_page_that_is_named_is_written_where_its_name_leads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    run = RunDirectory(Path("runs/digits"))
    run.create()
    run.save(a_job().running().snapshot.job)
    Path("page.html").symlink_to("there.html")
    assert report(Runs(Path("runs")), "digits", Path("page.html")) == 0
    assert Path("page.html").is_symlink()
    assert Path("there.html").read_text().startswith("<!doctype html>")
    assert capsys.readouterr().out == "written: page.html\n"
