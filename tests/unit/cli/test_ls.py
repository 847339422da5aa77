"""`ddpjob ls`: which runs it lists, in which order, and with what."""

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
from ddpjob_operator.api import BadInputError, DDPJob
from ddpjob_operator.cli.ls import ls
from ddpjob_operator.local import RunDirectory, Runs


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def a_run(runs: Path, name: str, hours: float, log: str | None = None, **status: Any) -> RunDirectory:
    """A run that was created so many hours ago."""
    run = RunDirectory(runs / name)
    run.create()
    run.make_secret()
    created = time.time() - 3600 * hours
    os.utime(run.secrets / "secret", (created, created))
    template = {"spec": {"containers": [{"name": "trainer", "image": "any"}]}}
    document = {"metadata": {"name": name, "uid": name}, "spec": {"template": template}, "status": status}
    run.save(DDPJob.from_dict(document))
    if log is not None:
        for attempt, text in ((1, "loss 99"), (2, log)):
            run.logs_of(attempt).mkdir()
            (run.logs_of(attempt) / "node-0.log").write_text(text)
    return run


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    runs = tmp_path / "runs"
    a_run(runs, "b-old", 30, state="Succeeded", progress={"step": 7, "loss": 0.123456})
    a_run(runs, "a-older", 50, "x" * 70_000 + "\niter 1: loss 3.5\n\nlossless\n", state="Failed")
    a_run(runs, "c-new", 1, "progress step=1 loss=0.5\nprogress step=2 loss=0.25\n", state="Running")
    a_run(runs, "d-newer", 0.5, "loss 7 \x1b[2J\n", state="Failed", progress={"lossNotFinite": "NaN"})
    a_run(runs, "e-older-still", 60, state="Pending")
    return runs


def rows(printed: str) -> list[list[str]]:
    return [line.split() for line in printed.splitlines()]


@pytest.mark.parametrize("output", [None, "wide"])
def test_the_newest_run_comes_first_with_the_last_loss_of_each(
    runs: Path, output: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    ls(Runs(runs), output)
    header, *lines = capsys.readouterr().out.splitlines()
    at = header.index("LOSS")
    listed = [(line.split()[0], line[at : at + 7].strip()) for line in lines]
    assert listed == [
        *(("d-newer", "NaN"), ("c-new", "0.25"), ("b-old", "0.1235"), ("a-older", "3.5"), ("e-older-still", "")),
    ]


@pytest.mark.parametrize(
    ("states", "names"),
    [
        (["failed"], ["d-newer", "a-older"]),
        (["Running", "Pending"], ["c-new", "e-older-still"]),
        (["Suspended"], []),
    ],
)
def test_only_the_runs_in_a_state_are_listed_if_one_is_given(
    runs: Path, states: list[str], names: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    ls(Runs(runs), None, states)
    assert [row[0] for row in rows(capsys.readouterr().out)] == ["NAME", *names]
    ls(Runs(runs), "json", states)
    assert [run["name"] for run in json.loads(capsys.readouterr().out)] == names


def test_a_state_that_does_not_exist_is_refused_with_those_that_do(runs: Path) -> None:
    with pytest.raises(BadInputError, match=r"^--state Done: must be one of Pending, .*, Succeeded, Failed$"):
        ls(Runs(runs), None, ["Done"])


def test_a_program_gets_the_runs_as_json(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ls(Runs(runs), "json")
    newest, *others = json.loads(capsys.readouterr().out)
    assert newest.pop("created")
    assert newest == {
        "name": "d-newer",
        "directory": str(runs / "d-newer"),
        "state": "Failed",
        "message": "",
        "step": None,
        "loss": "NaN",
        "restarts": 0,
    }
    assert [run["loss"] for run in others] == [0.25, 0.1235, 3.5, None]


def test_a_log_that_is_no_file_is_not_waited_for(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = runs / "a-older" / "logs" / "attempt-2" / "node-0.log"
    log.unlink()
    os.mkfifo(log)
    ls(Runs(runs))
    assert len(capsys.readouterr().out.splitlines()) == 6


def test_a_run_that_never_started_comes_last(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (a_run(runs, "never", 0, state="Pending").secrets / "secret").unlink()
    ls(Runs(runs), "json")
    assert [run["name"] for run in json.loads(capsys.readouterr().out)][-2:] == ["e-older-still", "never"]
