"""Packages that come too late: another version was imported before the rank was forked."""

import json
import sys
from pathlib import Path

import pytest
from ddpjob_rank.running.script.late_packages import warn_of_late_packages


@pytest.fixture
def site(tmp_path: Path) -> str:
    for name in ("json", "ddpjobtiny"):
        (tmp_path / name).mkdir()
    for name in ("pathlib.py", "json-9.dist-info", "sys.py"):
        (tmp_path / name).touch()
    return str(tmp_path)


def test_modules_that_were_imported_from_elsewhere_are_named_and_what_to_do(
    site: str, capsys: pytest.CaptureFixture[str]
) -> None:
    warn_of_late_packages([site, "/nowhere"])
    assert capsys.readouterr().err == (
        "warning: the json, pathlib in PYTHONPATH are not used: another version was imported before this run, with"
        " PyTorch. Install them with ddpjob hold --pip\n"
    )


def test_nothing_is_said_of_modules_that_come_from_there_nor_by_other_ranks(
    site: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    warn_of_late_packages([])
    for name in ("json", "pathlib"):
        monkeypatch.setattr(sys.modules[name], "__file__", f"{site}/{name}.py")
    warn_of_late_packages([site])
    monkeypatch.setattr(json, "__file__", "/usr/lib/json.py")
    monkeypatch.setenv("RANK", "1")
    warn_of_late_packages([site])
    assert capsys.readouterr().err == ""
