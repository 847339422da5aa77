"""`ddpjob status -w`: rows as jobs change, until Ctrl-C."""

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ddpjob_operator.api import BadInputError, DDPJob
from ddpjob_operator.cli import status as here
from ddpjob_operator.cli.cluster.job_status import status as status_there
from ddpjob_operator.cli.cluster.job_status import watch
from ddpjob_operator.cli.ls import ls
from ddpjob_operator.cli.main import main
from ddpjob_operator.client import Document
from ddpjob_operator.local import RunDirectory, Runs

from tests.unit.client.api import JOBS, a_job, a_list, jobs_of

SPEC = {"nodes": 2, "template": {"spec": {"containers": [{"name": "trainer", "image": "x"}]}}}
HEADER = ["NAME", "STATE", "READY", "PROGRESS", "ETA", "RESTARTS", "AGE", "MESSAGE"]


def a_document(state: str, name: str = "digits") -> Document:
    job = a_job(name, uid=name)
    job["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
    return {**job, "spec": SPEC, "status": {"state": state, "message": f"{state} now"}}


def change(kind: str, document: Document) -> bytes:
    return json.dumps({"type": kind, "object": document}).encode()


def one_change() -> Iterator[bytes]:
    yield change("MODIFIED", a_document("Running"))
    raise KeyboardInterrupt


def rows(printed: str) -> list[list[str]]:
    return [line.split() for line in printed.splitlines()]


@pytest.mark.parametrize("name", [None, "digits"])
def test_a_clusters_jobs_are_watched_and_not_asked_for_again(
    name: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    jobs, asked = jobs_of(*([a_document("Pending")] if name else []), a_list(a_document("Pending")), one_change())
    with pytest.raises(KeyboardInterrupt):
        watch(jobs, name, everywhere=False)
    header, *said = rows(capsys.readouterr().out)
    assert header == HEADER
    assert [(cells[0], cells[1], cells[-2:]) for cells in said] == [
        ("digits", "Pending", ["Pending", "now"]),
        ("digits", "Running", ["Running", "now"]),
    ]
    selected = {"fieldSelector": "metadata.name=digits"} if name else {}
    listing, watching = (request for request in asked if request[1] == JOBS and request[3] is not None)
    assert listing[3] == selected
    assert watching[3].items() > {**selected, "watch": "true"}.items()


def write(run: RunDirectory, state: str) -> None:
    run.save(DDPJob.from_dict({**a_document(state, run.root.name), "kind": "DDPJob"}))


@pytest.mark.parametrize("named", [[], ["digits"]], ids=["all", "one"])
def test_runs_of_this_machine_are_told_when_they_change_and_the_end_is_ctrl_c(
    named: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = RunDirectory(tmp_path / "runs" / "digits")
    run.create()
    write(run, "Pending")
    steps: list[Any] = [lambda: None, lambda: write(run, "Running"), run.job_file.unlink]

    def pause(_: float) -> None:
        if not steps:
            raise KeyboardInterrupt
        steps.pop(0)()

    monkeypatch.setattr(here.time, "sleep", pause)
    monkeypatch.setattr("sys.argv", ["ddpjob", "status", *named, "-w", "--run-dir", str(tmp_path / "runs")])
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 130
    said = capsys.readouterr()
    assert [cells[1] for cells in rows(said.out)] == ["STATE", "Pending", "Running", "Deleted"]
    assert said.err == ""


def test_a_long_directory_keeps_to_its_line_on_a_terminal_and_is_whole_where_that_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("COLUMNS", "80")
    runs = tmp_path / "directories-of-the-year-that-are-long" / "ddpjob-runs"
    run = RunDirectory(runs / "digits")
    run.create()
    run.save(DDPJob.from_dict(a_document("Running")))
    ls(Runs(runs))
    assert rows(capsys.readouterr().out)[1][-1] == str(run.root)
    monkeypatch.setenv("FORCE_COLOR", "1")
    ls(Runs(runs))
    assert rows(capsys.readouterr().out)[1][-1] == "…/ddpjob-runs/digits"
    ls(Runs(runs), "wide")
    assert rows(capsys.readouterr().out)[1][-1] == str(run.root)


def test_a_run_that_is_suspended_is_as_old_as_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    runs = tmp_path / "ddpjob-runs"
    run = RunDirectory(runs / "digits")
    run.create()
    run.make_secret()
    an_hour_ago = time.time() - 3600
    os.utime(run.secrets / "secret", (an_hour_ago, an_hour_ago))
    run.save(DDPJob.from_dict(a_document("Suspended")))
    ls(Runs(runs))
    header, cells = rows(capsys.readouterr().out)
    assert dict(zip(header, [*cells[:2], "", "", *cells[2:]], strict=True))["AGE"] == "60m"
    here.status(Runs(runs), "digits")
    assert ["Age:", "60m"] in rows(capsys.readouterr().out)


def test_several_jobs_are_not_shown_in_full(tmp_path: Path) -> None:
    for name in ("digits", "letters"):
        run = RunDirectory(tmp_path / "runs" / name)
        run.create()
        write(run, "Running")
    with pytest.raises(BadInputError, match="add its name"):
        here.status(Runs(tmp_path / "runs"), None, "wide")
    with pytest.raises(BadInputError, match="add its name"):
        status_there(jobs_of()[0], None, "wide", everywhere=False)


def test_all_runs_are_listed_as_json_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for name in ("digits", "letters"):
        run = RunDirectory(tmp_path / "runs" / name)
        run.create()
        write(run, "Running")
    assert here.status(Runs(tmp_path / "runs"), None, "json") == 0
    assert [job["metadata"]["name"] for job in json.loads(capsys.readouterr().out)] == ["digits", "letters"]
