"""`ddpjob status` of runs on this machine: of one in full, of several in a line each, and of those that change."""

import json
from pathlib import Path
from typing import Any

import pytest
from ddpjob_operator.cli import status as module
from ddpjob_operator.cli.arguments import parse
from ddpjob_operator.cli.commands import call
from ddpjob_operator.cli.phrases import INTERRUPTED
from ddpjob_operator.local import Lock, RunDirectory

from tests.unit.view_model.jobs import condition, job_with


def test_whether_a_process_is_left_is_told_and_how_to_go_on(
    digits: RunDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    digits.attach(1)
    go_on = "Go on with: ddpjob run --resume digits --attach 1\n"
    assert call(parse(["status", "digits", "--local"])) == 0
    nobody = "No ddpjob run is in charge of this job, and none of its processes is left"
    assert f"\n\n{nobody}. {go_on}" in capsys.readouterr().out
    (digits.pods / "digits-0-x").mkdir()
    pod = Lock(digits.pods / "digits-0-x" / "lock")
    pod.acquire()
    assert call(parse(["status", "digits", "--local"])) == 0
    pod.release()
    nobody = "No ddpjob run is in charge of this job, so this may be out of date"
    assert f"\n\n{nobody}. {go_on}" in capsys.readouterr().out


def test_a_run_is_printed_as_json_whole(digits: RunDirectory, capsys: pytest.CaptureFixture[str]) -> None:
    job = digits.load()
    assert job is not None
    assert call(parse(["status", "digits", "--local", "-o", "json"])) == 0
    assert json.loads(capsys.readouterr().out) == job.to_document()


def put(run: RunDirectory, state: str, **status: Any) -> RunDirectory:
    """Makes a run, or changes its state."""
    run.create()
    job, name = job_with({"state": state, **status}), run.root.name
    run.save(job.model_copy(update={"metadata": job.metadata.model_copy(update={"name": name, "uid": name})}))
    return run


def called(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> tuple[list[str], str]:
    """The lines that `ddpjob status` prints, and what it says beside them."""
    assert call(parse(["status", "--local", *words])) == code
    said = capsys.readouterr()
    return said.out.splitlines(), said.err


def states(lines: list[str]) -> list[list[str]]:
    return [line.split()[:2] for line in lines]


@pytest.mark.parametrize(
    ("state", "status"), [("Suspended", {}), ("Succeeded", {"conditions": [condition("Complete")]})]
)
def test_of_a_run_at_rest_nobody_has_to_be_in_charge(
    digits: RunDirectory, state: str, status: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    put(digits, state, **status)
    assert "No ddpjob run is in charge" not in "\n".join(called(capsys, "digits")[0])
    put(digits, "Running")
    lock = digits.lock
    assert lock.acquire()
    assert "No ddpjob run is in charge" not in "\n".join(called(capsys, "digits")[0])
    lock.release()


def test_the_only_run_need_not_be_named_and_has_the_loss_of_its_log(
    digits: RunDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    lines, _ = called(capsys)
    assert lines[0].split() == ["Name:", "digits"]
    assert not [line for line in lines if line.startswith(("Logs:", "Loss:"))]
    digits.logs_of(1).mkdir(parents=True)
    (digits.logs_of(1) / "node-0.log").write_text("progress step=1 loss=0.125\n")
    lines, _ = called(capsys, "-o", "wide")
    assert ["Logs:", "ddpjob-runs/digits/logs"] in [line.split() for line in lines]
    assert ["Loss:", "0.125"] in [line.split() for line in lines]


def test_several_runs_have_a_line_each(digits: RunDirectory, capsys: pytest.CaptureFixture[str]) -> None:
    put(digits, "Running")
    put(RunDirectory(digits.root.with_name("other")), "Failed", message="no\nroom")
    lines, _ = called(capsys)
    assert states(lines) == [["NAME", "STATE"], ["digits", "Running"], ["other", "Failed"]]
    assert lines[-1].endswith(r"no\nroom")
    documents = json.loads("\n".join(called(capsys, "-o", "json")[0]))
    assert [document["status"]["state"] for document in documents] == ["Running", "Failed"]
    assert called(capsys, "-o", "wide", code=2)[1] == "error: -o wide shows one job in full; add its name\n"


def test_without_a_run_it_is_said_how_to_start_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    for words in ([], ["-o", "wide"], ["-o", "json"]):
        said = called(capsys, *words, code=2)[1]
        assert said == "error: no runs under ddpjob-runs; start one with: ddpjob run FILE\n"


def test_a_file_that_cannot_be_read_hides_no_other_run(
    digits: RunDirectory, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = put(RunDirectory(digits.root.with_name("bad")), "Running")
    bad.job_file.write_text("{")
    put(RunDirectory(digits.root.with_name("secret")), "Running")
    load = RunDirectory.load

    def loaded(run: RunDirectory) -> Any:
        if run.root.name == "secret":
            raise PermissionError(13, "Permission denied", str(run.job_file))
        return load(run)

    monkeypatch.setattr(RunDirectory, "load", loaded)
    lines, said = called(capsys)
    assert states(lines)[1:] == [["digits", "Pending"]]
    first, second = said.splitlines()
    assert first.startswith("warning: ")
    assert "bad/job.json is damaged" in first
    assert "Permission denied" in second
    digits.job_file.write_text("{")
    lines, said = called(capsys, code=2)
    assert (lines, [line[:7] for line in said.splitlines()]) == ([], ["error: "] * 3)


@pytest.mark.parametrize("words", [(), ("digits",)])
def test_who_watches_runs_sees_each_change_once(
    digits: RunDirectory,
    words: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    put(digits, "Running")
    other = put(RunDirectory(digits.root.with_name("other")), "Pending")
    changes = [
        lambda: None,
        lambda: put(digits, "Restarting"),
        other.job_file.unlink,
        lambda: put(digits, "Failed"),
    ]

    def sleep(seconds: float) -> None:
        assert seconds == module.POLL_SECONDS
        if not changes:
            raise KeyboardInterrupt
        changes.pop(0)()

    monkeypatch.setattr(module.time, "sleep", sleep)
    assert call(parse(["status", "--local", "--watch", *words])) == INTERRUPTED
    of_other = [] if words else [["other", "Pending"]]
    gone = [] if words else [["other", "Deleted"]]
    assert states(capsys.readouterr().out.splitlines()) == [
        ["NAME", "STATE"],
        ["digits", "Running"],
        *of_other,
        ["digits", "Restarting"],
        *gone,
        ["digits", "Failed"],
    ]
