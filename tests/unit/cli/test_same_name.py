"""A script's run and a YAML file's job of the same name: neither takes the other's place."""

from pathlib import Path

import pytest
import yaml
from ddpjob_operator.api import DDPJob
from ddpjob_operator.cli.main import main
from ddpjob_operator.local import RunDirectory

JOB = """
apiVersion: ddpjob.dev/v1alpha2
kind: DDPJob
metadata: {name: train}
spec: {template: {spec: {containers: [{name: trainer, image: any, command: [ddpjob-train]}]}}}
"""
KEEP = "Go on with it: ddpjob run --resume train; remove it, with its logs and checkpoints: ddpjob rm train; or"


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunDirectory:
    """One that has succeeded, beside a script and a YAML file."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    Path("train.yaml").write_text(JOB)
    Path("train.py").touch()
    directory = RunDirectory(tmp_path / "ddpjob-runs" / "train")
    directory.create()
    ended = {"type": "Complete", "status": "True", "reason": "AllRanksSucceeded", "message": "1 node finished"}
    ended |= {"lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": 1}
    directory.save(DDPJob.from_dict({**yaml.safe_load(JOB), "status": {"conditions": [ended]}}))
    return directory


@pytest.mark.parametrize(
    ("begun", "words", "said"),
    [
        (
            {"program": "train.py"},
            "train.yaml",
            f"train is a run of train.py, not of train.yaml. {KEEP} give the job of train.yaml another metadata.name",
        ),
        (
            {"program": "train.py"},
            "--fresh train.yaml",
            f"train is a run of train.py, not of train.yaml. {KEEP} give the job of train.yaml another metadata.name",
        ),
        (
            {"file": "train.yaml"},
            "--fresh train.py",
            f"train is a run of train.yaml, not of train.py. {KEEP} choose another --name",
        ),
    ],
    ids=["a file after a script", "the same from the start", "a script from the start after a file"],
)
def test_a_run_is_not_taken_over_by_another_program_of_its_name(
    begun: dict[str, str],
    words: str,
    said: str,
    *,
    run: RunDirectory,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run.begin(**begun)
    before = run.job_file.read_text()
    monkeypatch.setattr("sys.argv", ["ddpjob", "run", *words.split()])
    with pytest.raises(SystemExit) as end:
        main()
    assert (end.value.code, capsys.readouterr().err) == (2, f"error: {said}\n")
    assert run.job_file.read_text() == before


def test_whose_run_it_is_is_not_asked_while_it_runs(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run.begin(program="train.py")
    lock = run.lock
    assert lock.acquire()
    monkeypatch.setattr("sys.argv", ["ddpjob", "run", "train.yaml"])
    with pytest.raises(SystemExit):
        main()
    assert "train is running already" in capsys.readouterr().err
    lock.release()


def test_a_run_that_was_killed_before_it_was_written_down_keeps_its_name_for_nobody(run: RunDirectory) -> None:
    run.begin(program="train.py")
    assert run.begun == {"program": "train.py"}
    run.job_file.unlink()
    assert run.begun == {}
