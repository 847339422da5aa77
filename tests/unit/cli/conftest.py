"""A run that commands find by its name."""

from pathlib import Path

import pytest
from ddpjob_operator.local import RunDirectory

from tests.unit.engine.builders import a_job


@pytest.fixture
def digits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunDirectory:
    """The run `digits` of the directory in which commands run; nothing of it runs."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    run = RunDirectory(tmp_path / "ddpjob-runs" / "digits")
    run.create()
    run.save(a_job(nodes=1).snapshot.job)
    return run
