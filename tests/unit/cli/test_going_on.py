"""`ddpjob run --resume`: a run goes on as it is once this process has it."""

from pathlib import Path

import pytest
from ddpjob_operator.cli.arguments import parse
from ddpjob_operator.cli.commands import call
from ddpjob_operator.local import Lock, RunDirectory

from tests.unit.engine.builders import a_job


def test_what_another_process_has_changed_until_it_let_go_is_heeded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    run = RunDirectory(tmp_path / "ddpjob-runs" / "digits")
    run.create()
    run.save(a_job(nodes=1).snapshot.job)
    acquire = Lock.acquire

    def let_go(lock: Lock) -> bool:
        run.save(a_job(nodes=2).running().succeeds(0, 1).settled().snapshot.job)
        return acquire(lock)

    monkeypatch.setattr(Lock, "acquire", let_go)
    code = call(parse(["run", "--resume", "digits"]))
    said = capsys.readouterr()
    assert (code, said.err) == (0, "")
    assert said.out.splitlines()[-1] == (
        "digits has succeeded already. Start over with: ddpjob run --fresh --resume digits"
    )
