"""`ddpjob.submit(…, replace=True, in_place=True)`: it does what the command does, and speaks as a function."""

import importlib
import json
import zipfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import ddpjob
import pytest
from ddpjob_operator.client import Document
from ddpjob_operator.sdk import submitting
from kubernetes.client.api_client import ApiClient

from tests.unit.cli.test_new_code import ANSWERS, FAILED, World
from tests.unit.client.api import JOBS

from .test_sdk import Accepting

submit = importlib.import_module("ddpjob_operator.cli.cluster.submit")
talk = importlib.import_module("ddpjob_operator.cli.cluster.talk")


def train(lr: float) -> float:
    return lr


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Accepting]:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text("print('old')\n", encoding="utf-8")
    cluster = Accepting(ApiClient(), "here", "team")
    with monkeypatch.context() as patch:
        patch.setattr(submitting, "connect", lambda *_: cluster)
        yield cluster


def running(cluster: Accepting, *args: Any, **options: Any) -> Document:
    """The job of such a submit, as it runs."""
    ddpjob.submit(*args, **options, quiet=True)
    job: Document = [body for method, path, body, *_ in cluster.asked if (method, path) == ("POST", JOBS)][-1]
    job["metadata"] |= {"uid": "uid-1", "creationTimestamp": "2026-01-01T00:00:00Z"}
    return job | {"status": {"attempt": 1, "bookkeeping": {"incarnations": {"default": 1}}}}


def a_world(job: Document, monkeypatch: pytest.MonkeyPatch, *answers: dict[str, Any]) -> World:
    world = World(job, monkeypatch, *answers)
    monkeypatch.setattr(submitting, "Jobs", lambda _: world.jobs)
    return world


def test_the_running_job_gets_the_new_code_of_its_script(
    cluster: Accepting, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    world = a_world(running(cluster, "train.py", nodes=2), monkeypatch, *ANSWERS)
    Path("train.py").write_text("print('new')\n", encoding="utf-8")
    job = ddpjob.submit("train.py", replace=True, in_place=True)
    assert (job.name, world.asked[0], world.asked[-2:]) == ("train", "ReplaceCode", ["Apply", "release"])
    assert zipfile.ZipFile(BytesIO(world.supervisor.code)).read("train.py") == b"print('new')\n"
    printed = capsys.readouterr().out
    assert ("attempt 2 runs the new code" in printed, "submitted to" in printed) == (True, False), printed


def test_arguments_of_a_function_are_part_of_its_code(cluster: Accepting, monkeypatch: pytest.MonkeyPatch) -> None:
    world = a_world(running(cluster, train, {"lr": 0.1}, nodes=2), monkeypatch, *ANSWERS)
    ddpjob.submit(train, {"lr": 0.2}, nodes=2, replace=True, in_place=True, quiet=True)
    sent = zipfile.ZipFile(BytesIO(world.supervisor.code))
    assert json.loads(sent.read("ddpjob_arguments.json")) == {"lr": 0.2}


@pytest.mark.parametrize(
    ("options", "answers", "said"),
    [
        ({"nodes": 4}, (), "with in_place only the code of train can change, but so would its nodes (nodes)."),
        ({}, (*ANSWERS[:3], {"kind": "Tried", "failed": FAILED}), "correct the new code, and repeat this call"),
        ({"source_registry": "registry.example.com/code"}, (), "in_place replaces code that is sent in a Config"),
    ],
)
def test_errors_name_parameters_and_no_flags(
    cluster: Accepting,
    monkeypatch: pytest.MonkeyPatch,
    options: dict[str, Any],
    answers: tuple[dict[str, Any], ...],
    said: str,
) -> None:
    a_world(running(cluster, "train.py", nodes=2), monkeypatch, *answers)
    with pytest.raises(ddpjob.BadInputError) as raised:
        ddpjob.submit("train.py", **options, replace=True, in_place=True, quiet=True)
    assert said in str(raised.value)
    assert "--" not in str(raised.value)


def test_after_ctrl_c_the_program_does_not_go_on_as_if_nothing_had_happened(
    cluster: Accepting, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    a_world(running(cluster, "train.py"), monkeypatch, *ANSWERS[:3])
    monkeypatch.setattr(talk.Talk, "outcome", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        ddpjob.submit("train.py", replace=True, in_place=True)
    assert "train goes on; look at it: ddpjob status train" in capsys.readouterr().out


def test_with_replace_alone_the_existing_job_is_changed(
    cluster: Accepting, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    job, changed = running(cluster, "train.py"), list[Any]()
    a_world(job, monkeypatch).jobs.has = lambda _: True
    monkeypatch.setattr(submit, "replace", lambda _, found, document, *__: changed.append(document) or found)
    assert ddpjob.submit("train.py", nodes=4, replace=True).name == "train"
    assert changed[0]["spec"]["nodes"] == 4
    assert "train: 4 nodes x 1 process, submitted to" in capsys.readouterr().out
