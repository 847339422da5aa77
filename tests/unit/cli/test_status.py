"""`ddpjob status` of a run that no `ddpjob run` is in charge of."""

import json

import pytest
from ddpjob_operator.cli.arguments import parse
from ddpjob_operator.cli.commands import call
from ddpjob_operator.local import Lock, RunDirectory


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
