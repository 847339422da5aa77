"""`ddpjob.submit`, `ddpjob.connect` and `ddpjob.Job`, with a cluster that is made up."""

import re
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import ddpjob
import pytest
from ddpjob_operator.api.reasons import FROM_OUTSIDE
from ddpjob_operator.client import Document, ExistsError, JobPod, RefusedError, as_job
from ddpjob_operator.client.cluster import Query
from ddpjob_operator.local import RunDirectory
from ddpjob_operator.sdk import connecting, handle, running, submitting
from ddpjob_operator.sdk.handle import Job, LogLine
from kubernetes.client.api_client import ApiClient

from docs.generator.library import public_names
from tests.unit.client.api import JOBS, Scripted, a_cluster, a_list, jobs_of, jobs_with, refused
from tests.unit.client.api import a_job as a_document

OF_SDK = [name for name in public_names() if ddpjob.HOMES.get(name.name, "").startswith(ddpjob.SDK)]


def supervised() -> Document:
    return {"spec": {"containers": [{"name": "trainer", "image": "any", "command": ["ddpjob-supervise", "x.py"]}]}}


SPEC = {"nodes": 2, "template": {"spec": {"containers": [{"name": "trainer", "image": "any"}]}}}
CRASH = [
    "epoch 1",
    "Traceback (most recent call last):",
    '  File "train.py", line 3',
    "    1 / 0",
    "ZeroDivisionError: no",
]
FAILED = {"type": "Failed", "status": "True", "reason": "MaxRestartsExceeded", "message": "rank 1 has failed"}
FAILED |= {"lastTransitionTime": "2026-01-01T12:00:00Z", "observedGeneration": 1}
INCIDENT = {"time": "2026-01-01T12:00:00Z", "attempt": 1, "node": 1, "rank": 1, "pod": "digits-1-x", "exitCode": 1}
INCIDENT |= {"cause": "ApplicationError", "message": "ZeroDivisionError: no", "step": 7, "nodeName": "gpu-4"}


def a_document_with(*conditions: dict[str, Any], spec: dict[str, Any] | None = None, **status: Any) -> dict[str, Any]:
    status = {"attempt": 1, "nodes": 2, "bookkeeping": {"incarnations": {"default": 1}}, **status}
    return {**a_document(), "spec": SPEC | (spec or {}), "status": {**status, "conditions": [*conditions]}}


def a_pod(node: int, *, ended: bool = True) -> JobPod:
    return JobPod(f"digits-{node}-x", "team", f"uid-{node}", node, 1, 1, started=True, ended=ended)


def a_failed_job(**more: Any) -> Job:
    """A job whose rank 1 has failed, with the logs of both pods."""
    document = a_document_with(
        FAILED, **({"state": "Failed", "reason": FAILED["reason"], "incidents": [INCIDENT]} | more)
    )
    logs = {"digits-0-x": ["epoch 1"], "digits-1-x": CRASH}
    jobs = jobs_with(
        find=lambda _: document,
        watch=lambda _: iter([document]),
        pods=lambda _: [a_pod(0), a_pod(1)],
        log=lambda pod, **_: [("2026-01-01T12:00:00.123456789Z", line) for line in logs[pod.name]],
    )
    return Job(jobs, document)


class Accepting(Scripted):
    """A cluster that accepts every object, and gives it a uid."""

    def call(self, method: str, path: str, body: Document | None = None, query: Query | None = None) -> Document:
        self.asked.append((method, path, body, query))
        if body is None:
            raise refused(404, "NotFound", name="any")
        return {**body, "metadata": {**a_document()["metadata"], "resourceVersion": "1", **body["metadata"]}}

    def metadata(self, *_: Any) -> list[Document]:
        return []


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What a cluster is asked that accepts everything."""
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text("print(1)\n", encoding="utf-8")
    cluster = Accepting(ApiClient(), "here", "team")
    monkeypatch.setattr(submitting, "connect", lambda *_: cluster)
    return cluster.asked


def test_a_script_becomes_the_job_that_the_command_would_make_of_it(
    asked: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    job = ddpjob.submit("train.py", args=["--lr", 0.1], nodes=2, gpus_per_node=8, env={"A": 1}, queue="team-a")
    sent = [body for method, path, body, *_ in asked if (method, path) == ("POST", JOBS)][-1]
    trainer = sent["spec"]["template"]["spec"]["containers"][0]
    assert (job.name, job.namespace, sent["metadata"]["namespace"]) == ("train", "team", "team")
    assert (trainer["command"], trainer["args"]) == (["ddpjob-supervise", "train.py"], ["--lr", "0.1"])
    assert (sent["spec"]["nodes"], trainer["resources"]["limits"]["nvidia.com/gpu"]) == (2, 8)
    assert {"name": "A", "value": "1"} in trainer["env"]
    assert "team-a" in sent["metadata"]["labels"].values()
    assert "train: 2 nodes x 8 processes, submitted to namespace team of context here" in capsys.readouterr().out


def test_a_quiet_submit_prints_nothing(asked: list[Any], capsys: pytest.CaptureFixture[str]) -> None:
    ddpjob.submit("train.py", quiet=True)
    assert (bool(asked), capsys.readouterr()) == (True, ("", ""))


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"target": "nosuch.py"}, "there is no nosuch.py"),
        ({"target": "train.py", "args": "--lr 0.1"}, r"args='--lr 0.1': must be a list"),
        *(
            ({"target": "train.py", option: "einops"}, f"{option}='einops': must be a list")
            for option in ("env_from", "include", "pip", "volumes", "image_volumes")
        ),
        ({"target": "train.py", "nodes": 0}, "nodes"),
        ({"target": "train.py", "module": "train"}, "name only one of them"),
        ({"target": "train.py", "checkpoint": "/here"}, "checkpoint='/here': must be CLAIM"),
        ({}, "name a function or a script"),
    ],
)
def test_a_mistake_is_one_error_that_a_program_can_catch(given: dict[str, Any], says: str, asked: list[Any]) -> None:
    with pytest.raises(ddpjob.BadInputError, match=says) as raised:
        ddpjob.submit(**given)
    assert not [method for method, *_ in asked if method == "POST"]
    assert traceback.format_exception_only(raised.value)[0].startswith("ddpjob.BadInputError: ")


def test_a_failed_job_raises_the_failure_of_the_rank_that_failed_first() -> None:
    with pytest.raises(ddpjob.RankFailed) as raised:
        a_failed_job().result()
    failed = raised.value
    assert (failed.name, failed.rank, failed.node, failed.node_name, failed.step) == ("digits", 1, 1, "gpu-4", 7)
    assert (failed.cause, failed.exit_code, failed.attempt) == ("ApplicationError", 1, 1)
    assert failed.remote_traceback == "\n".join(CRASH[1:])
    assert "logs digits -n team --node 1" in failed.hint
    shown = "".join(traceback.format_exception(failed))
    assert "ddpjob.RankFailed: " in shown
    assert failed.remote_traceback in shown
    assert failed.hint in shown


def test_the_traceback_is_that_of_the_pod_that_failed_first_whatever_others_print() -> None:
    job = a_failed_job()
    job._jobs.pods = lambda _: [a_pod(1), a_pod(0)]  # type: ignore[method-assign,assignment,misc]
    job._jobs.log = lambda pod, **_: [  # type: ignore[method-assign,assignment,misc,return-value]
        ("2026-01-01T12:00:00Z", line.replace("ZeroDivisionError", "Zero" if pod.node else "Peer")) for line in CRASH
    ]
    with pytest.raises(ddpjob.RankFailed) as raised:
        job.result()
    assert raised.value.remote_traceback.endswith("\nZero: no")


def test_a_failure_is_raised_even_if_its_log_cannot_be_read() -> None:
    job = a_failed_job()

    def refuses(_: Any) -> None:
        raise RefusedError("no", 403, {})

    job._jobs.pods = refuses  # type: ignore[method-assign,assignment,misc]
    with pytest.raises(ddpjob.RankFailed) as raised:
        job.result()
    assert (raised.value.rank, raised.value.remote_traceback) == (1, "")


def test_a_failure_is_raised_even_if_the_job_is_deleted_when_it_has_ended() -> None:
    job = a_failed_job()
    found = iter([job._document])
    job._jobs.find = lambda _: next(found, None)  # type: ignore[method-assign,assignment,misc]
    with pytest.raises(ddpjob.RankFailed):
        job.result()


def test_control_characters_of_a_program_do_not_reach_the_terminal() -> None:
    job = a_failed_job(incidents=[INCIDENT | {"message": "\x1b[2J"}])
    job._jobs.log = lambda *_, **__: [("2026-01-01T12:00:00Z", f"{line}\x1b]0;title\x07") for line in CRASH]  # type: ignore[method-assign,assignment,misc,return-value]
    with pytest.raises(ddpjob.RankFailed) as raised:
        job.result()
    assert "\x1b" in raised.value.remote_traceback
    assert "\x1b" not in "".join(traceback.format_exception_only(raised.value))


def test_a_deadline_is_no_failure_of_a_rank() -> None:
    with pytest.raises(ddpjob.JobFailed) as raised:
        a_failed_job(reason="DeadlineExceeded").result()
    assert not isinstance(raised.value, ddpjob.RankFailed)


@pytest.mark.parametrize("reason", sorted(FROM_OUTSIDE))
def test_a_run_on_this_machine_that_ends_from_outside_is_no_failure_of_a_rank_either(
    reason: str, tmp_path: Path
) -> None:
    document = a_document_with(FAILED, state="Failed", reason=reason, incidents=[INCIDENT])
    error = running._failure(as_job(document), RunDirectory(tmp_path))
    assert type(error) is ddpjob.JobFailed


def test_as_the_value_of_a_cell_a_status_is_a_few_lines() -> None:
    def shown(**status: Any) -> str:
        printed: list[str] = []
        told: Any = as_job(a_document_with(**status)).status
        told._repr_pretty_(SimpleNamespace(text=printed.append), False)
        return "".join(printed)

    assert shown(state="Pending", message="waits\x1b") == "Pending: waits\\x1b"
    trains = {"progress": {"step": 7, "totalSteps": 9, "loss": 0.5}, "attempt": 2, "restarts": 1}
    assert shown(state="Running", message="2 nodes running", **trains) == (
        "Running: 2 nodes running\nstep 7 of 9, loss 0.5\nattempt 2, 1 restart"
    )


def test_waiting_has_an_end() -> None:
    document = a_document_with(state="Running")
    jobs = jobs_with(find=lambda _: document, watch=lambda _: iter([document]))
    with pytest.raises(TimeoutError, match="digits has not ended yet, and goes on"):
        Job(jobs, document).wait("10ms", quiet=True)
    with pytest.raises(ddpjob.BadInputError, match="soon is not a duration"):
        Job(jobs, document).wait("soon")


@pytest.mark.parametrize("closed", [True, False])
def test_who_has_waited_in_vain_is_told_what_the_job_did_last_also_if_the_output_was_closed(
    monkeypatch: pytest.MonkeyPatch, *, closed: bool
) -> None:
    before, now = (a_document_with(state="Running", message=message) for message in ("starts", "step 7"))
    watched = iter([[now], [now] if closed else []])
    jobs = jobs_with(find=lambda _: before, watch=lambda _: iter(next(watched)))
    life = handle.Life(jobs, before)

    def follow(deadline: float) -> None:
        while not closed and time.monotonic() < deadline:
            assert not [*life.news(0.01)]

    monkeypatch.setattr(handle, "ShownJob", SimpleNamespace(on=lambda *_: SimpleNamespace(life=life, follow=follow)))
    with pytest.raises(TimeoutError, match="step 7"):
        Job(jobs, before).wait("100ms")


@pytest.mark.parametrize(
    ("which", "lines"),
    [
        ({}, ["epoch 1", *CRASH]),
        ({"rank": 0}, ["epoch 1"]),
        ({"node": 1}, CRASH),
        ({"node": 1, "attempt": 1, "tail": 1}, CRASH[-1:]),
    ],
)
def test_the_lines_of_a_log_say_when_and_who(which: dict[str, Any], lines: list[str]) -> None:
    found = list(a_failed_job().logs(**which))
    assert [line.text for line in found] == lines
    assert {line.rank for line in found} <= {0, 1}
    moment = datetime(2026, 1, 1, 12, 0, 0, 123456, tzinfo=UTC)
    assert found[-1] == LogLine(moment, found[-1].node, found[-1].node, 1, lines[-1])


def test_of_an_attempt_in_the_past_the_lines_are_those_of_its_own_pods_and_of_no_other_attempt() -> None:
    job, log = a_failed_job(attempt=3, bookkeeping={"incarnations": {"default": 2}}), list[str]()
    pods = [a_pod(0), JobPod("digits-0-y", "team", "uid-y", 0, 2, 2, started=True, ended=True)]
    said = {"digits-0-x": ["one"], "digits-0-y": ["two", "attempt 3 begins in place: rank 1", "three"]}
    job._jobs.pods = lambda _: pods  # type: ignore[method-assign,assignment,misc]
    job._jobs.log = lambda pod, **_: [("2026-01-01T12:00:00Z", line) for line in said[pod.name]]  # type: ignore[method-assign,assignment,misc,return-value]
    for attempt in (1, 2, 3):
        lines = [line for line in job.logs(attempt=attempt) if "begins" not in line.text]
        assert {line.attempt for line in lines} == {attempt}
        log += [line.text for line in lines]
    assert log == ["one", "two", "three"]


@pytest.mark.parametrize(
    ("which", "spec", "says"),
    [
        ({"rank": 2}, {}, "has no rank 2: its ranks are numbered 0 to 1"),
        ({"rank": 16}, {"procsPerNode": 8}, "has no rank 16: its ranks are numbered 0 to 15"),
        ({"node": -1}, {}, "has no node -1: its nodes are numbered 0 to 1"),
        ({"rank": 0, "node": 0}, {}, "give only one of them"),
        (
            {"rank": 0, "attempt": 1},
            {"scheduling": {"topology": {"required": "rack"}}, "template": supervised()},
            "the ranks of digits follow placement; give its node",
        ),
    ],
)
def test_a_log_of_nobody_is_an_error(which: dict[str, Any], spec: dict[str, Any], says: str) -> None:
    document = a_document_with(spec=spec)
    jobs = jobs_with(find=lambda _: document)
    with pytest.raises(ddpjob.BadInputError, match=says):
        next(Job(jobs, document).logs(**which))


def test_the_log_of_a_rank_that_follows_placement_is_that_of_its_present_node() -> None:
    job = a_failed_job()
    job._document["spec"] |= {"scheduling": {"topology": {"required": "rack"}}, "template": supervised()}
    job._jobs.node_of_rank = lambda _job, _pods, rank: 1 - rank  # type: ignore[method-assign,assignment,misc]
    assert [line.text for line in job.logs(rank=0)] == CRASH


@pytest.mark.parametrize(
    "example",
    [example for name in OF_SDK for example in name.examples if ".logs(" in example or ".wait(" in example],
)
def test_the_examples_that_show_logs_run(
    example: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    document = a_failed_job()._document
    document["spec"]["nodes"] = document["status"]["nodes"] = 4
    jobs = jobs_with(
        find=lambda _: document,
        watch=lambda _: iter([document]),
        pods=lambda _: [a_pod(3)],
        watch_pods=lambda _: iter([[a_pod(3)]]),
        log=lambda *_, **__: [("2026-01-01T12:00:00Z", "a line")],
    )
    monkeypatch.setattr(ddpjob, "connect", lambda _: Job(jobs, document), raising=False)
    exec(example, {"ddpjob": ddpjob, "job": Job(jobs, document)})
    assert re.search(r"\b3\]? a line\n", capsys.readouterr().out)


def test_progress_is_told_when_it_changes_until_the_job_has_ended() -> None:
    running = [a_document_with(state="Running", progress={"step": step}) for step in (1, 1, 2)]
    ended = a_document_with(FAILED, state="Failed", progress={"step": 3})
    jobs = jobs_with(find=lambda _: running[0], watch=lambda _: iter([*running, ended, a_document()]))
    assert [progress.step for progress in Job(jobs, running[0]).progress()] == [1, 2, 3]
    jobs.watch = lambda _: iter([running[0], None])
    with pytest.raises(ddpjob.ClusterError, match="digits was deleted"):
        list(Job(jobs, running[0]).progress())


def test_a_job_that_was_made_anew_is_another_one() -> None:
    jobs, _ = jobs_of(a_document(uid="uid-2"))
    with pytest.raises(ddpjob.BadInputError, match="digits no longer exists in namespace team"):
        Job(jobs, a_document()).status()
    jobs, _ = jobs_of(refused(404, "NotFound", name="digits"))
    with pytest.raises(ddpjob.BadInputError, match="digits no longer exists"):
        Job(jobs, a_document()).suspend()


@pytest.mark.parametrize("nodes", [0, -1, True, 1.5, "2"])
def test_a_job_has_a_whole_number_of_nodes(nodes: Any) -> None:
    with pytest.raises(ddpjob.BadInputError, match="must be a whole number"):
        Job(jobs_of()[0], a_document()).scale(nodes)


CHANGES: dict[str, tuple[Callable[[Job], None], tuple[str, str, Document]]] = {
    "suspend": (Job.suspend, ("PATCH", JOBS, {"metadata": {"uid": "uid-1"}, "spec": {"suspend": True}})),
    "resume": (Job.resume, ("PATCH", JOBS, {"metadata": {"uid": "uid-1"}, "spec": {"suspend": False}})),
    "scale": (lambda job: job.scale(3), ("PATCH", f"{JOBS}/digits/scale", {"spec": {"replicas": 3}})),
}


@pytest.mark.parametrize(("change", "request_"), CHANGES.values(), ids=CHANGES)
def test_a_job_is_changed_until_it_has_ended(
    change: Callable[[Job], None], request_: tuple[str, str, Document]
) -> None:
    document = a_document_with(state="Running")
    jobs, asked = jobs_of(document, {})
    change(Job(jobs, document))
    method, path, body, _ = asked[-1]
    assert (method, path.removesuffix("/digits"), body) == request_
    ended = a_document_with(FAILED, state="Failed")
    jobs, asked = jobs_of(ended)
    with pytest.raises(ddpjob.BadInputError, match="digits has failed and cannot be changed"):
        change(Job(jobs, document))
    assert len(asked) == 1


def test_a_job_is_deleted_whether_it_has_ended_or_not() -> None:
    jobs, asked = jobs_of({})
    Job(jobs, a_document()).delete()
    assert [(method, path, body["preconditions"]) for method, path, body, _ in asked] == [
        ("DELETE", f"{JOBS}/digits", {"uid": "uid-1"})
    ]


@pytest.mark.parametrize("quiet", [True, False])
def test_who_does_not_wait_any_longer_is_told_how_to_go_on_unless_it_is_to_be_quiet(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *, quiet: bool
) -> None:
    document = a_document_with(state="Running")
    interrupted = Mock(side_effect=KeyboardInterrupt)
    jobs = jobs_with(find=lambda _: document, watch=lambda _: iter([document]))
    monkeypatch.setattr(handle, "ShownJob", SimpleNamespace(on=interrupted))
    monkeypatch.setattr(handle.Life, "news", interrupted)
    with pytest.raises(KeyboardInterrupt):
        Job(jobs, document).wait(quiet=quiet)
    assert ("digits goes on in the cluster" in capsys.readouterr().out) is not quiet


class Cancelling:
    """The jobs of a cluster with one job, which remembers whether it was cancelled."""

    def __init__(self, document: Document | None, error: Exception | None = None) -> None:
        self.document, self.error, self.cancelled = document, error, False

    def find(self, _: Document) -> Document | None:
        return self.document

    def cancel(self, _: Document) -> None:
        if self.error is not None:
            raise self.error
        self.cancelled = True


def a_cancellable(document: Document | None, error: Exception | None = None) -> tuple[Job, Cancelling]:
    jobs = Cancelling(document, error)
    return Job(jobs, a_document_with(state="Running")), jobs  # type: ignore[arg-type]


@pytest.mark.parametrize("error", [ValueError("no"), KeyboardInterrupt(), SystemExit(1), SystemExit([1])], ids=repr)
def test_a_job_is_cancelled_if_its_block_is_left_by_an_exception(error: BaseException) -> None:
    job, jobs = a_cancellable(a_document_with(state="Running"))
    with pytest.raises(type(error)) as raised, job:
        raise error
    assert jobs.cancelled
    assert raised.value.__notes__ == ["digits was cancelled because of this"]


def test_a_timeout_that_leaves_the_block_does_not_say_that_the_job_goes_on() -> None:
    document, cancelled = a_document_with(state="Running", message="step 7"), Mock()
    jobs = jobs_with(find=lambda _: document, watch=lambda _: iter([document]), cancel=cancelled)
    with pytest.raises(TimeoutError, match="digits has not ended yet: step 7") as raised, Job(jobs, document) as job:
        job.result(timeout="10ms")
    cancelled.assert_called_once()
    assert raised.value.__notes__ == ["digits was cancelled because of this"]


def test_a_job_goes_on_if_its_block_ends() -> None:
    job, jobs = a_cancellable(a_document_with(state="Running"))
    with job as same:
        assert same is job
    assert not jobs.cancelled


@pytest.mark.parametrize("code", [None, 0])
def test_a_job_goes_on_if_the_program_ends_in_its_block_without_a_failure(code: int | None) -> None:
    job, jobs = a_cancellable(a_document_with(state="Running"))
    with pytest.raises(SystemExit) as raised, job:
        sys.exit(code)
    assert not jobs.cancelled
    assert not hasattr(raised.value, "__notes__")


def test_the_error_of_a_block_is_worth_more_than_that_of_the_cluster() -> None:
    job, _ = a_cancellable(a_document_with(state="Running"), RefusedError("the cluster refuses: no", 403, {}))
    with pytest.raises(ValueError, match="mine") as raised, job:
        raise ValueError("mine")
    assert raised.value.__notes__ == ["digits could not be cancelled, and goes on: the cluster refuses: no"]


@pytest.mark.parametrize("document", [None, a_document_with(FAILED, state="Failed")], ids=["gone", "ended"])
def test_there_is_nothing_to_cancel_of_a_job_that_has_ended(document: Document | None) -> None:
    job, jobs = a_cancellable(document)
    job.cancel()
    with pytest.raises(ValueError, match="mine") as raised, job:
        raise ValueError("mine")
    assert not jobs.cancelled
    assert not hasattr(raised.value, "__notes__"), "nothing was cancelled because of it"


def test_an_operator_that_cannot_cancel_is_an_error() -> None:
    job, _ = a_cancellable(a_document_with(state="Running"), ddpjob.BadInputError("unknown field spec.cancel"))
    with pytest.raises(ddpjob.BadInputError, match="unknown field"):
        job.cancel()


def test_a_cancelled_job_cannot_be_resumed_and_no_rank_has_failed() -> None:
    document = a_document_with(state="Running", spec={"cancel": True})
    with pytest.raises(ddpjob.BadInputError, match="digits was cancelled and cannot be changed"):
        Job(jobs_of(document)[0], document).resume()
    with pytest.raises(ddpjob.JobFailed) as raised:
        a_failed_job(reason="Cancelled").result()
    assert not isinstance(raised.value, ddpjob.RankFailed)


def test_a_job_that_has_not_started_has_the_ranks_of_its_spec() -> None:
    document = a_document_with(nodes=None)
    jobs: Any = SimpleNamespace(find=lambda _: document)
    with pytest.raises(ddpjob.BadInputError, match="has no rank 2: its ranks are numbered 0 to 1"):
        next(Job(jobs, document).logs(rank=2))


@pytest.mark.parametrize(
    ("given", "answers", "connected", "path"),
    [
        ({}, a_list(a_document()), (None, None, None), JOBS),
        ({"name": "digits"}, a_document(), (None, None, None), f"{JOBS}/digits"),
        (
            {"name": "digits", "namespace": "a", "context": "b", "kubeconfig": "c"},
            a_document(),
            (Path("c"), "b", "a"),
            f"{JOBS}/digits",
        ),
    ],
)
def test_a_job_is_found_by_its_name_or_as_the_only_one(
    monkeypatch: pytest.MonkeyPatch, given: Any, answers: Any, connected: Any, path: str
) -> None:
    cluster, asked = a_cluster(answers), list[Any]()
    monkeypatch.setattr(connecting, "connect_cluster", lambda *words: (asked.append(words), cluster)[1])
    assert ddpjob.connect(**given).name == "digits"
    assert asked == [connected]
    assert [words[1] for words in cluster.asked] == [path]


def test_a_name_that_is_taken_is_told_with_what_to_do(monkeypatch: pytest.MonkeyPatch, asked: list[Any]) -> None:
    monkeypatch.setattr(submitting, "create_or_replace", Mock(side_effect=ExistsError("train exists already")))
    with pytest.raises(ddpjob.BadInputError) as taken:
        ddpjob.submit("train.py")
    what = "Choose another name=…, replace it by replace=True, or look at it: ddpjob.connect('train')"
    assert str(taken.value) == f"train exists already. {what}"
    assert asked == []


def test_what_a_followed_job_waits_for_is_said_beside_its_lines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def followed(*of: Any) -> list[Any]:
        of[-1]("2 pods wait")
        return []

    monkeypatch.setattr(handle, "followed_lines", followed)
    document = a_document_with(state="Running")
    job = Job(jobs_with(find=lambda _: document, pods=lambda _: []), document)
    assert [*job.logs(follow=True)] == []
    assert capsys.readouterr() == ("", "ddpjob: 2 pods wait\n")


def test_what_is_wrong_with_a_history_is_said_beside_its_lines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    opened = nullcontext(SimpleNamespace(problems=["a segment is missing\x1b[2J"]))
    monkeypatch.setattr(handle, "opened_history", lambda *_: opened)
    job = Job(jobs_with(), a_document_with())
    with job._opened_history(as_job(job._document)):
        pass
    assert capsys.readouterr() == ("", "ddpjob: a segment is missing\\x1b[2J\n")


def test_a_job_that_has_ended_while_it_was_shown_is_not_watched_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    document = a_document_with(FAILED | {"type": "Complete"}, state="Succeeded")
    life = SimpleNamespace(over=True, stop=Mock(), job=as_job(document))
    monkeypatch.setattr(handle, "Life", Mock(side_effect=AssertionError("it has ended")))
    shown = SimpleNamespace(life=life, follow=lambda _: None)
    monkeypatch.setattr(handle, "ShownJob", SimpleNamespace(on=lambda *_: shown))
    assert Job(jobs_with(find=lambda _: document), document).wait().succeeded
    assert life.stop.called
