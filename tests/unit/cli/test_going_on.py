"""`ddpjob run --resume`: a run goes on as it is once this process has it."""

from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from ddpjob_operator.api import BadInputError, DDPJobStatus
from ddpjob_operator.api.job_file import written
from ddpjob_operator.cli import run
from ddpjob_operator.cli.arguments import parse
from ddpjob_operator.cli.cluster.change import suspend
from ddpjob_operator.cli.commands import call
from ddpjob_operator.cli.phrases import INTERRUPTED, how_to_resume
from ddpjob_operator.cli.run import _succeeded_already
from ddpjob_operator.cli.screen import Screen
from ddpjob_operator.local import Lock, RunDirectory

from tests.unit.engine.builders import a_job

RUNNABLE = {"spec": {"containers": [{"name": "trainer", "image": "any", "command": ["x"]}]}}


def test_what_another_process_has_changed_until_it_let_go_is_heeded(
    digits: RunDirectory, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    acquire = Lock.acquire

    def let_go(lock: Lock) -> bool:
        digits.save(a_job(nodes=2).running().succeeds(0, 1).settled().snapshot.job)
        return acquire(lock)

    monkeypatch.setattr(Lock, "acquire", let_go)
    code = call(parse(["run", "--resume", "digits"]))
    said = capsys.readouterr()
    assert (code, said.err) == (0, "")
    assert said.out.splitlines()[-1] == (
        "digits has succeeded already. Start over with: ddpjob run --fresh --resume digits"
    )


@pytest.mark.parametrize(
    ("checkpoint", "place"),
    [
        ({"path": "s3://bucket/digits"}, "s3://bucket/digits"),
        ({"path": "/saved", "volume": {"hostPath": {"path": "/here/saved"}}}, "/here/saved"),
    ],
)
def test_how_to_start_over_is_not_with_the_checkpoints_that_another_run_may_use(
    checkpoint: dict[str, Any], place: str, capsys: pytest.CaptureFixture[str]
) -> None:
    job = a_job(checkpoint=checkpoint).snapshot.job
    assert _succeeded_already(Screen(), job, job, "--resume digits") == 0
    assert capsys.readouterr().out == (
        "digits has succeeded already. To start over, save elsewhere: even with --fresh, a run goes on from the"
        f" checkpoints in {place}\n"
    )


def test_a_run_that_goes_on_does_not_name_a_field_as_the_reason_for_its_backend(
    digits: RunDirectory, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    digits.save(a_job(nodes=2, backend="Gloo").running().snapshot.job)  # As the first attempt has stored it.
    monkeypatch.setattr(run, "_carry_on", lambda *_: True)
    assert call(parse(["run", "--resume", "digits"])) == INTERRUPTED
    assert "2 nodes x 1 process, backend gloo (as before), going on from attempt 1\n" in capsys.readouterr().out


def test_a_run_that_was_stopped_is_no_longer_to_stop_when_it_goes_on(
    digits: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    digits.save(a_job(backend="Gloo", suspend=True, template=RUNNABLE).snapshot.job)
    runners: list[Any] = []
    monkeypatch.setattr(run, "_carry_on", lambda runner, *_: runners.append(runner) or True)
    assert call(parse(["run", "--resume", "digits"])) == INTERRUPTED
    assert runners[0].job.spec.suspend is False
    digits.job_file.unlink()
    with pytest.raises(BadInputError, match=r"^digits no longer exists$"):
        run._going_on(digits)


def test_a_new_run_says_what_of_its_file_is_not_needed_and_where_it_keeps_what(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(run, "_carry_on", lambda *_: True)
    for path, places in (
        ("/ckpt", ["logs and checkpoints: ddpjob-runs/digits"]),
        ("s3://bucket/ckpt", ["logs: ddpjob-runs/digits", "checkpoints: s3://bucket/ckpt"]),
    ):
        job = a_job(nodes=1, backend="Gloo", checkpoint={"path": path}, template=RUNNABLE).snapshot.job.to_document()
        del job["status"]
        (tmp_path / "job.yaml").write_text(f"{written(job)}---\nkind: Secret\n")
        assert call(parse(["run", "--fresh", "job.yaml"])) == INTERRUPTED
        said = capsys.readouterr().out.splitlines()
        assert "ddpjob: Secret in job.yaml is not needed on this machine" in said
        (starts,) = (number for number, line in enumerate(said) if line.startswith("digits: 1 node x 1 process"))
        assert said[starts + 1 : starts + 1 + len(places)] == places


@pytest.mark.parametrize(("nodes", "procs", "lines"), [(1, 1, 1), (2, 1, 2), (1, 2, 2)])
def test_who_has_a_terminal_is_told_where_the_others_print(nodes: int, procs: int, lines: int) -> None:
    job = a_job(nodes=nodes, procsPerNode=procs).snapshot.job
    greeting = [
        "rank 1 has this terminal, and Ctrl-C stops the run",
        "output of the other ranks: ddpjob logs digits --follow",
    ]
    assert [*run._greeting(job, 1)] == greeting[:lines]


def test_a_run_that_leaves_its_terminal_says_how_to_look_and_goes(
    digits: RunDirectory, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    digits.save(a_job(backend="Gloo", template=RUNNABLE).snapshot.job)
    monkeypatch.setattr(run, "_carry_on", lambda *_: True)
    leave = Mock()
    monkeypatch.setattr(run, "detachable", lambda: leave)
    assert call(parse(["run", "--resume", "digits", "--detach"])) == INTERRUPTED
    said = capsys.readouterr().out
    for line in (
        "It runs in the background; its output goes to ddpjob-runs/digits/",
        "Watch it with: ddpjob logs digits --follow",
        "Stop it with: ddpjob stop digits",
    ):
        assert line in said
    leave.assert_called_once_with(digits.output.relative_to(Path.cwd()))
    monkeypatch.setattr(run, "detachable", lambda: 7)
    assert call(parse(["run", "--resume", "digits", "--detach"])) == 7


@pytest.mark.parametrize(
    ("edited", "changed"),
    [
        ({}, ""),
        ({"suspend": True}, ""),
        ({"backend": "Auto"}, ""),
        ({"backend": "Gloo"}, ""),
        ({"backend": "NCCL"}, "backend"),
        ({"nodes": 3, "activeDeadlineSeconds": 60}, "activeDeadlineSeconds, nodes"),
    ],
)
def test_a_file_that_was_edited_after_its_job_has_succeeded_is_told_from_one_that_was_not(
    edited: dict[str, Any], changed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    ended, wanted = a_job(nodes=2, backend="Gloo"), a_job(**{"nodes": 2, "backend": "Gloo"} | edited)
    arguments = Screen(), ended.snapshot.job, wanted.snapshot.job, "job.yaml"
    anew = "Start over with: ddpjob run --fresh job.yaml"
    if not changed:
        assert _succeeded_already(*arguments) == 0
        assert capsys.readouterr().out == f"digits has succeeded already. {anew}\n"
        return
    with pytest.raises(BadInputError) as error:
        _succeeded_already(*arguments)
    said, names = str(error.value).split(": ", 1)
    assert said == "digits has succeeded, and job.yaml has changed since"
    assert sorted(names.removesuffix(f". {anew}").split(", ")) == changed.split(", ")


STARTS_OVER = [
    "No checkpoint is known: the script starts over, unless the script itself finds what it has saved.",
    'The tutorial "Make your script resume" shows how to change that.',
]
UNKNOWN = ["No step or checkpoint is known: if it has trained, it starts over, unless it finds what it saved."]


@pytest.mark.parametrize(
    ("known", "said"),
    [
        ({"progress": {"step": 3}}, STARTS_OVER),
        ({"progress": {"step": 30}, "checkpoint": {"step": 20}}, []),
        ({"progress": {"activity": "Loading"}}, UNKNOWN),
        ({}, UNKNOWN),
        ({"attempt": 0}, []),
    ],
)
def test_who_stops_a_run_is_told_that_it_starts_over_only_if_it_has_trained(
    known: dict[str, Any], said: list[str]
) -> None:
    status = DDPJobStatus.model_validate({"attempt": 1, **known})
    assert how_to_resume("ddpjob run --resume digits", status) == [*said, "Go on with: ddpjob run --resume digits"]


@pytest.mark.parametrize(("saved", "known"), [(None, False), ({"step": 20}, True)])
def test_who_suspends_a_job_on_a_cluster_is_told_if_no_checkpoint_is_known_of(
    capsys: pytest.CaptureFixture[str], saved: dict[str, int] | None, *, known: bool
) -> None:
    volume = {"persistentVolumeClaim": {"claimName": "claim"}}
    document = a_job(nodes=2, checkpoint={"path": "/out", "volume": volume}).running().snapshot.job.to_document()
    document["status"] |= {"progress": {"step": 30}, **({"checkpoint": saved} if saved else {})}
    jobs = Mock(get=lambda _: document)
    assert suspend(jobs, "digits") == 0
    jobs.suspend.assert_called_once()
    assert ("\n".join([*STARTS_OVER, "Go on with:"]) in capsys.readouterr().out) is not known
