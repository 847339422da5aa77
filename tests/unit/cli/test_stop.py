"""`ddpjob stop` of a run that nobody runs any more."""

from pathlib import Path

import pytest
from ddpjob_operator.cli.arguments import parse
from ddpjob_operator.cli.commands import call
from ddpjob_operator.local import RunDirectory

from tests.unit.engine.builders import a_job


def test_what_is_done_for_it_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    run = RunDirectory(tmp_path / "ddpjob-runs" / "digits")
    run.create()
    run.save(a_job(nodes=1).snapshot.job)
    assert call(parse(["stop", "digits"])) == 0
    assert capsys.readouterr().out.splitlines() == [
        "ddpjob: Nothing runs until the job is resumed",
        "digits: Suspended. Nothing runs until the job is resumed",
        "Go on with: ddpjob run --resume digits",
    ]
