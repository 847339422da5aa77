"""What `ddpjob status` prints of jobs on a cluster."""

import json
from typing import Any

import pytest
from ddpjob_operator.api import BadInputError
from ddpjob_operator.cli.cluster.job_status import stacks, status
from ddpjob_operator.cli.cluster.life import UNNOTICED, UNNOTICED_CLASS
from ddpjob_operator.client import ClusterError, Document, Jobs, RefusedError
from ddpjob_operator.engine import pod_name

from tests.unit.client.api import JOBS, a_job, a_list, jobs_of, refused
from tests.unit.engine.builders import a_job as a_story

SPEC = {"nodes": 2, "template": {"spec": {"containers": [{"name": "trainer", "image": "x"}]}}}
FORBIDDEN = refused(403, "Forbidden")
NOTHING = a_list()


def a_document(name: str = "digits", **state: Any) -> Document:
    return {**a_job(name, uid=name), "spec": SPEC, "status": {"state": "Pending", "message": "no room", **state}}


def an_event(number: int, message: str = "") -> Document:
    when = f"2026-01-01T00:00:{number:02}Z"
    return {"type": "Normal", "reason": f"Reason{number}", "message": message, "lastTimestamp": when}


def printed(capsys: pytest.CaptureFixture[str], *answers: Any, **options: Any) -> str:
    assert status(jobs_of(*answers)[0], "digits", **options, everywhere=False) == 0
    return capsys.readouterr().out


def test_the_last_ten_events_are_shown_without_what_is_said_already(capsys: pytest.CaptureFixture[str]) -> None:
    events = [an_event(number, "no room" if number == 11 else f"says {number}") for number in range(12)]
    _, shown = printed(capsys, a_document(), a_list(*events)).split("Events:\n")
    said = [line.split(None, 2)[2] for line in shown.splitlines()]
    assert said == [*(f"Reason{number}: says {number}" for number in range(2, 11)), "Reason11"]


def test_a_job_without_events_has_no_heading_for_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert "Events" not in printed(capsys, a_document(), NOTHING)


def test_who_may_not_see_events_sees_the_job(capsys: pytest.CaptureFixture[str]) -> None:
    said = printed(capsys, a_document(), FORBIDDEN)
    assert "no room" in said
    assert "Events are not shown: the cluster of context here refuses: no" in said


def test_of_a_job_that_nobody_has_noticed_that_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    said = printed(capsys, a_document(message=""), NOTHING)
    assert f"\n\n{UNNOTICED}\n" in said


STARTED = {"operator": "system/operator", "startTime": "2026-01-01T00:00:00Z"}


@pytest.mark.parametrize(
    ("label", "status", "wide", "lines"),
    [
        (None, STARTED, False, []),
        (None, STARTED, True, ["Operator: system/operator"]),
        ("canary", {}, False, ["Class: canary"]),
        ("canary", STARTED | {"className": "canary"}, False, ["Class: canary", "Operator: system/operator"]),
        ("canary", STARTED, False, ["Class: default; canary once it is suspended", "Operator: system/operator"]),
        (
            None,
            STARTED | {"className": "canary"},
            False,
            ["Class: canary; default once it is suspended", "Operator: system/operator"],
        ),
    ],
)
def test_the_class_of_a_job_is_shown_and_who_runs_it(
    label: str | None, status: dict[str, Any], lines: list[str], capsys: pytest.CaptureFixture[str], *, wide: bool
) -> None:
    document = a_document()
    document["metadata"] |= {"labels": {"ddpjob.dev/class": label} if label else {}}
    document["status"] |= status
    said = printed(capsys, document, NOTHING, output="wide" if wide else None)
    shown = [" ".join(line.split()) for line in said.splitlines()]
    assert [line for line in shown if line.startswith(("Class:", "Operator:"))] == lines


def test_a_list_has_classes_if_any_job_has_one_and_says_which_job_nobody_runs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    waits = a_document("waits", message="")
    waits["metadata"] |= {"labels": {"ddpjob.dev/class": "canary"}}
    jobs, _ = jobs_of(a_list(a_document(), waits))
    assert status(jobs, None, everywhere=False) == 0
    heading, *rows = (" ".join(line.split()) for line in capsys.readouterr().out.splitlines())
    assert heading.endswith(" CLASS MESSAGE")
    assert [row.split(" ", 1)[0] for row in rows] == ["digits", "waits"]
    assert rows[0].endswith(" no room")
    assert rows[1].endswith(f" canary {UNNOTICED_CLASS.format('canary')}")


@pytest.mark.parametrize(("supervised", "running"), [(True, True), (False, True), (True, False)])
def test_how_to_see_more_of_a_job_is_told_once_there_is_more(
    capsys: pytest.CaptureFixture[str], *, supervised: bool, running: bool
) -> None:
    story = a_story(nodes=2).running() if running else a_story(nodes=2)
    job = story.snapshot.job
    kept = job.status.bookkeeping.model_copy(update={"supervised": supervised})
    job = job.model_copy(update={"status": job.status.model_copy(update={"bookkeeping": kept})})
    document = job.to_document()
    document["metadata"] |= {"creationTimestamp": "2026-01-01T00:00:00Z"}
    name, where = job.metadata.name, f"-n {job.metadata.namespace}"
    said = printed(capsys, document, NOTHING)
    assert (f"ddpjob logs {name} {where}" in said) is running
    forward = f"kubectl port-forward {where} pod/{pod_name(job, 0, 1)} 29501"
    assert (forward in said) is (supervised and running)


@pytest.mark.parametrize("everywhere", [True, False])
def test_jobs_are_listed_with_their_namespaces_if_those_differ(
    capsys: pytest.CaptureFixture[str], *, everywhere: bool
) -> None:
    jobs, asked = jobs_of(a_list(a_document("b"), a_document("a")))
    assert status(jobs, None, everywhere=everywhere) == 0
    heading, *rows = (line.split() for line in capsys.readouterr().out.splitlines())
    first = ["team"] if everywhere else []
    assert heading[:2] == (["NAMESPACE", "NAME"] if everywhere else ["NAME", "STATE"])
    assert [row[: len(first) + 2] for row in rows] == [[*first, "a", "Pending"], [*first, "b", "Pending"]]
    assert asked[0][1] == (JOBS.replace("/namespaces/team", "") if everywhere else JOBS)


@pytest.mark.parametrize(("everywhere", "where"), [(True, "any namespace"), (False, "namespace team")])
def test_where_there_are_none_it_says_where(
    where: str, capsys: pytest.CaptureFixture[str], *, everywhere: bool
) -> None:
    assert status(jobs_of(NOTHING)[0], None, everywhere=everywhere) == 0
    assert f"no DDPJobs in {where} of " in capsys.readouterr().out


@pytest.mark.parametrize("name", [None, "digits"])
def test_json_is_what_the_cluster_has(name: str | None, capsys: pytest.CaptureFixture[str]) -> None:
    jobs, _ = jobs_of(a_document() if name else a_list(a_document()))
    assert status(jobs, name, "json", everywhere=False) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found if name else found[0])["spec"] == SPEC


def test_only_one_job_can_be_shown_wide() -> None:
    with pytest.raises(BadInputError):
        status(jobs_of()[0], None, "wide", everywhere=False)


@pytest.mark.parametrize(
    ("answer", "everywhere", "error", "says"),
    [
        (FORBIDDEN, True, ClusterError, "you need the right to list ddpjobs in the whole cluster"),
        (FORBIDDEN, False, RefusedError, "refuses: no"),
        (refused(500), True, ClusterError, "cannot answer now: no"),
    ],
)
def test_who_may_not_see_all_jobs_knows_which_right_is_missing(
    answer: Exception, error: type[Exception], says: str, *, everywhere: bool
) -> None:
    with pytest.raises(error, match=says):
        status(jobs_of(answer)[0], None, everywhere=everywhere)


@pytest.mark.parametrize("name", [None, "digits"])
def test_what_its_ranks_do_is_printed_of_the_only_job_or_the_named_one(
    name: str | None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    does = {"job": "ab", "phase": "Gathering", "ranks": []}
    monkeypatch.setattr(Jobs, "look", lambda _, document: does | {"attempt": document["status"]["attempt"]})
    job = a_document(attempt=7)
    assert stacks(jobs_of(job if name else a_list(job))[0], name) == 0
    assert capsys.readouterr().out == "attempt 7: no rank runs; the gang's phase is Gathering\n"
