"""What a job's handle has when the job's pods are gone, and when the job itself is."""

import json
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ddpjob
import pytest
from ddpjob_operator.cli.cluster import kept
from ddpjob_operator.history import open_place
from ddpjob_operator.sdk.handle import Job
from ddpjob_supervisor.history.history import NodeHistory, facts
from ddpjob_supervisor.history.journal import Journal
from ddpjob_supervisor.history.secret_values import SecretValues
from ddpjob_supervisor.history.segments import HistoryWriter
from ddpjob_supervisor.history.targets import DirectoryTarget

from tests.unit.client.api import jobs_with

from .test_sdk import FAILED, a_document_with, a_pod

AT = "2026-01-01T12:00:00Z"
STORE, ON_CLAIM = {"path": "s3://bucket"}, {"path": "/data/history"}
PROGRESS = [b"progress step=%d/3 loss=%.1f\n" % (step, 1 / step) for step in (1, 2, 3)]


@pytest.fixture
def history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A history of two attempts, in the only place that there is."""
    monkeypatch.setattr(kept, "open_place", lambda _: open_place(str(tmp_path / "kept")))
    writer = HistoryWriter("team", "digits", "uid-1", 0, 1, 1)
    target = DirectoryTarget(tmp_path / "kept", writer)
    journal = Journal("s3://bucket", writer, SecretValues({}), 1, lambda: target)
    journal.hear(1, b"a line\n")
    git = {"commit": "a" * 40, "branch": "main", "dirty": True}
    NodeHistory(journal, None).note("facts", 1, **facts({"DDPJOB_GIT": json.dumps(git)}))
    journal.attempt = 2
    journal.hear(1, b"attempt 2 begins\n" + b"".join(PROGRESS))
    journal.close(30)
    return tmp_path


def a_job(history: dict[str, str] | None, *, gone: bool = False, **calls: Any) -> Job:
    """A failed job without pods, with a history or without; or it is gone itself."""
    document = a_document_with(
        FAILED, state="Failed", message="rank 1 has failed", firstRunTime=AT, attempt=2, spec={"history": history}
    )
    if history is None:
        del document["spec"]["history"]
    pods = calls.pop("pods", lambda _: [])
    return Job(jobs_with(find=lambda _: None if gone else document, pods=pods, **calls), document)


@pytest.mark.parametrize("gone", [False, True], ids=["its pods are gone", "the job is gone"])
@pytest.mark.usefixtures("history")
def test_the_lines_of_a_log_come_from_the_history(*, gone: bool) -> None:
    job = a_job(STORE, gone=gone)
    assert [line.text for line in job.logs()][:2] == ["a line", "attempt 2 begins"]
    assert [(line.text, line.attempt) for line in job.logs(attempt=1, rank=0)] == [("a line", 1)]
    assert [line.text for line in job.logs(tail=1)] == ["progress step=3/3 loss=0.3"]
    with pytest.raises(ddpjob.BadInputError, match="no log of attempt 3 is kept"):
        next(job.logs(attempt=3))


@pytest.mark.usefixtures("history")
def test_an_attempt_whose_pods_are_gone_comes_from_the_history_while_others_are_there() -> None:
    job = a_job(STORE, pods=lambda _: [a_pod(0)], log=lambda *_, **__: [(AT, "of a pod")])
    assert [line.text for line in job.logs(node=0)] == ["of a pod"]
    pods = [a_pod(0)]
    object.__setattr__(pods[0], "attempt", 2)
    job = a_job(STORE, pods=lambda _: pods)
    assert [line.text for line in job.logs(attempt=1)] == ["a line"]


@pytest.mark.parametrize("read", [lambda job: next(job.logs()), lambda job: next(job.logs(attempt=1))])
def test_without_a_history_it_is_said_that_the_logs_are_gone(read: Callable[[Job], Any]) -> None:
    with pytest.raises(ddpjob.BadInputError, match=r"digits has no history, so what it printed went with its pods"):
        read(a_job(None))


def test_a_history_on_a_claim_is_read_by_a_pod_with_the_jobs_image(
    history: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    @contextmanager
    def opened(_: Any, address: str, *image: Any) -> Any:
        asked.append((address, *image))
        yield open_place(str(history / "kept"))

    monkeypatch.setattr(kept, "opened_address", opened)
    job = a_job(ON_CLAIM)
    with pytest.raises(ddpjob.BadInputError, match="is at /data/history, on no volume claim"):
        next(job.logs())
    pod = job._document["spec"]["template"]["spec"]
    pod["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    pod["containers"][0]["volumeMounts"] = [{"name": "data", "mountPath": "/data"}]
    assert next(job.logs()).text == "a line"
    assert asked == [("pvc://data/history", "any", ())]
    del pod["containers"][0]["image"]
    with pytest.raises(ddpjob.BadInputError, match="names no image for a pod that reads its history"):
        next(job.logs())


@pytest.mark.parametrize("gone", [False, True], ids=["its pods are gone", "the job is gone"])
def test_a_report_has_the_curve_of_the_history(history: Path, *, gone: bool) -> None:
    written = a_job(STORE, gone=gone).report(history / "page.html")
    assert written == history / "page.html"
    page = written.read_text(encoding="utf-8")
    assert "digits" in page
    assert ("rank 1 has failed" in page) is not gone, "what the job was when it was submitted is no news"
    assert page.count("<svg") >= 1
    assert "commit aaaaaaaaaaaa on main, with uncommitted changes" in page or not gone


def test_a_report_without_a_history_has_what_the_pods_have(tmp_path: Path) -> None:
    lines = [(AT, line.decode().strip()) for line in PROGRESS]
    job = a_job(None, pods=lambda _: [a_pod(0)], log=lambda *_, **__: lines)
    page = job.report(tmp_path / "page.html").read_text(encoding="utf-8")
    assert page.count("<svg") >= 1
    assert "<svg" not in a_job(None).report(tmp_path / "page.html").read_text(encoding="utf-8")
    with pytest.raises(ddpjob.BadInputError, match="no longer exists"):
        a_job(None, gone=True).report(tmp_path / "page.html")
    with pytest.raises(ddpjob.BadInputError, match=r"cannot write .*; choose another path"):
        job.report(tmp_path)
