"""Which run `ddpjob report` is about."""

from pathlib import Path
from unittest.mock import Mock

import pytest
from ddpjob_operator.api import BadInputError
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


def test_a_page_that_is_not_named_is_in_its_run_and_replaces_the_former_one(digits: RunDirectory) -> None:
    (page := digits.root / "report.html").symlink_to("elsewhere")
    assert report(Runs(digits.root.parent), "digits", None) == 0
    assert not page.is_symlink()
    assert page.read_text().startswith("<!doctype html>")


def test_a_page_that_cannot_be_written_is_an_error(digits: RunDirectory, tmp_path: Path) -> None:
    says = f"cannot write {tmp_path}/none/page.html: No such file or directory; choose another with --output"
    with pytest.raises(BadInputError, match=says):
        report(Runs(digits.root.parent), "digits", tmp_path / "none" / "page.html")


@pytest.mark.parametrize("missing", ["matplotlib", "other"])
def test_what_a_page_needs_is_named_if_it_is_missing(
    missing: str, digits: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    lacks = ModuleNotFoundError(f"No module named {missing}", name=missing)
    monkeypatch.setattr("ddpjob_operator.report.render", Mock(side_effect=lacks))
    known = missing == "matplotlib"
    with pytest.raises(BadInputError if known else ModuleNotFoundError, match=missing):
        report(Runs(digits.root.parent), "digits", None)


def another(run: RunDirectory, name: str) -> RunDirectory:
    """Another run beside a run."""
    other = RunDirectory(run.root.parent / name)
    other.create()
    other.save(a_job(nodes=1).snapshot.job)
    return other


def test_several_runs_are_compared_on_a_page_in_the_current_directory(
    digits: RunDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    another(digits, "second")
    assert report(Runs(digits.root.parent), "digits", None, ["second", str(digits.root)]) == 0
    assert capsys.readouterr().out == "written: comparison.html\n"
    text = Path("comparison.html").read_text()
    assert text.count("</th></tr></thead>") == text.count('<span class="run-1">'), "the same run does not count twice"
    assert 'class="run-2"' not in text


def test_more_runs_than_there_are_colours_are_refused(digits: RunDirectory) -> None:
    others = [another(digits, f"run{number}").root.name for number in range(5)]
    with pytest.raises(BadInputError, match="6 runs: at most 5 can be compared"):
        report(Runs(digits.root.parent), "digits", None, others)
    assert not Path("comparison.html").exists()


def test_a_run_that_is_not_there_is_named(digits: RunDirectory) -> None:
    with pytest.raises(BadInputError, match="no run named nothing"):
        report(Runs(digits.root.parent), "digits", None, ["nothing"])
