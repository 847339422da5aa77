"""What the client asks of an API server for this very job, and what it makes of the answers."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from ddpjob_operator.api import BadInputError
from ddpjob_operator.api.git_state import COMMIT
from ddpjob_operator.api.ownership import JobRef, name_of_pod
from ddpjob_operator.client import ClusterError, ExistsError, JobPod, Jobs, RefusedError, as_job

from .api import A_POD, JOBS, PODS, a_job, a_list, jobs_of, refused

GONE = refused(404, "NotFound", name="digits")
ANOTHER = refused(409, "Conflict")
"""There is a job of that name, but with another uid."""


def test_a_job_of_the_same_name_made_since_is_not_the_one_that_existed() -> None:
    jobs, asked = jobs_of(a_job(), a_job(uid="uid-2"), GONE)
    assert [jobs.find(a_job()) is not None for _ in range(3)] == [True, False, False]
    assert {path for _, path, *_ in asked} == {f"{JOBS}/digits"}, "it takes no right to list jobs"


@pytest.mark.parametrize(
    ("name", "answer", "has"),
    [
        ("digits", a_job(), True),
        ("digits", GONE, False),
        (None, a_list(a_job()), True),
        (None, a_list(), False),
        (None, refused(404), False),
    ],
    ids=["it", "not it", "some", "none", "no DDPJob installed"],
)
def test_whether_there_is_a_job_takes_one_question(name: str | None, answer: Any, *, has: bool) -> None:
    jobs, asked = jobs_of(answer)
    assert jobs.has(name) is has
    assert asked == [("GET", f"{JOBS}/digits" if name else JOBS, None, None if name else {"limit": "1"})]


@pytest.mark.parametrize(
    "ask",
    [
        lambda jobs: jobs.has("digits"),
        lambda jobs: jobs.find(a_job()),
        lambda jobs: jobs.get("digits"),
        lambda jobs: jobs.pod(A_POD),
    ],
)
def test_who_may_not_see_a_job_is_told_so_and_not_that_there_is_none(ask: Callable[[Jobs], object]) -> None:
    with pytest.raises(RefusedError):
        ask(jobs_of(refused(403))[0])


def test_only_this_very_job_is_deleted_and_what_belongs_to_it_follows() -> None:
    jobs, asked = jobs_of({})
    jobs.delete(a_job())
    body = {"propagationPolicy": "Background", "preconditions": {"uid": "uid-1"}}
    assert asked == [("DELETE", f"{JOBS}/digits", body, None)]


@pytest.mark.parametrize("answer", [GONE, ANOTHER], ids=["gone", "another of that name"])
def test_to_delete_a_job_that_is_gone_is_success(answer: Exception) -> None:
    jobs_of(answer)[0].delete(a_job())


def test_to_be_forbidden_to_delete_is_an_error() -> None:
    with pytest.raises(RefusedError):
        jobs_of(refused(403))[0].delete(a_job())


def test_this_very_job_is_suspended_or_cancelled() -> None:
    jobs, asked = jobs_of({}, {}, {})
    jobs.suspend(a_job())
    jobs.suspend(a_job(), suspended=False)
    jobs.cancel(a_job())
    specs = ({"suspend": True}, {"suspend": False}, {"cancel": True})
    bodies = [{"metadata": {"uid": "uid-1"}, "spec": spec} for spec in specs]
    assert asked == [("PATCH", f"{JOBS}/digits", body, {"fieldValidation": "Strict"}) for body in bodies]


def test_a_job_is_scaled_where_the_right_to_scale_is_enough() -> None:
    jobs, asked = jobs_of({})
    jobs.scale(a_job(), 3)
    assert asked == [("PATCH", f"{JOBS}/digits/scale", {"spec": {"replicas": 3}}, {"fieldValidation": "Strict"})]


@pytest.mark.parametrize(
    ("answer", "error", "words"),
    [
        (GONE, BadInputError, "digits no longer exists"),
        (ANOTHER, BadInputError, "digits no longer exists"),
        (refused(400), BadInputError, "the API server refuses to change digits: no"),
        (refused(422), BadInputError, "the API server refuses to change digits: no"),
        (refused(403), RefusedError, "the cluster of context here refuses: no"),
    ],
)
def test_a_change_that_cannot_be_made_says_why(answer: Exception, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=f"^{words}$"):
        jobs_of(answer)[0].suspend(a_job())


def test_a_job_is_replaced_as_it_is_at_that_moment_whoever_changes_it_meanwhile() -> None:
    document = a_job() | {"spec": {"nodes": 3}}
    reads = [a_job() | {"status": {"attempt": attempt}} for attempt in (1, 2, 3)]
    jobs, asked = jobs_of(reads[0], ANOTHER, reads[1], ANOTHER, reads[2], {"replaced": True})
    assert jobs.replace(a_job(), document) == {"replaced": True}
    written = [body for method, _, body, _ in asked if method == "PUT"]
    assert written == [read | {"spec": {"nodes": 3}} for read in reads]


def test_a_replaced_job_keeps_its_annotations_but_not_the_trace_context_of_an_earlier_submit() -> None:
    old = {"ddpjob.dev/traceparent": "old", "ddpjob.dev/tracestate": "old", "example.com/owner": "jane"}
    found = {"metadata": {**a_job()["metadata"], "annotations": old}}
    document = {"metadata": {"annotations": {"ddpjob.dev/traceparent": "new"}}, "spec": {}}
    jobs, asked = jobs_of(found, {})
    jobs.replace(found, document)
    annotations = asked[-1][2]["metadata"]["annotations"]
    assert annotations == {"ddpjob.dev/traceparent": "new", "example.com/owner": "jane"}


NEWER = {"configMap": "code-b", "former": "code-a", "revision": 4}
EDITED: dict[str, Any] = {"template": {"spec": {"containers": []}}}


def running(spec: dict[str, Any] | None = None, annotations: dict[str, str] | None = None) -> dict[str, Any]:
    """A job that runs the third revision of its code."""
    code = {"configMap": "code-a", "revision": 3}
    metadata = {**a_job()["metadata"], "resourceVersion": "7", "annotations": annotations or {}}
    return {"metadata": metadata, "spec": {"code": code, **(spec or {})}}


def test_new_code_gets_the_next_revision_and_the_marks_of_its_own_submission() -> None:
    found = running(annotations={COMMIT: "abc", "ddpjob.dev/traceparent": "old", "example.com/owner": "jane"})
    jobs, asked = jobs_of(found, ANOTHER, found, {"replaced": True})
    assert jobs.replace_code(running(), "code-b", "code-a", {"ddpjob.dev/traceparent": "new"}) == {"replaced": True}
    assert asked[-1][2] == {
        "metadata": {
            "resourceVersion": "7",
            "annotations": {COMMIT: None, "ddpjob.dev/traceparent": "new"},
        },
        "spec": {"code": NEWER},
    }


def test_code_that_the_job_names_already_changes_nothing() -> None:
    jobs, asked = jobs_of(running())
    assert jobs.replace_code(running(), "code-a", None, {}) == running()
    assert [method for method, *_ in asked] == ["GET"]


def test_another_code_to_go_back_to_is_no_new_revision() -> None:
    jobs, asked = jobs_of(running({"code": NEWER}), {})
    jobs.replace_code(running({"code": NEWER}), "code-b", "code-c", {})
    assert asked[-1][2]["spec"] == {"code": NEWER | {"former": "code-c"}}


@pytest.mark.parametrize("spec", [{"code": NEWER}, EDITED], ids=["the code", "the template"])
def test_new_code_is_for_the_job_as_it_was_looked_at(spec: dict[str, Any]) -> None:
    jobs, asked = jobs_of(running(spec))
    with pytest.raises(BadInputError, match="somebody else has replaced the code of digits meanwhile"):
        jobs.replace_code(running(), "code-b", "code-a", {})
    assert len(asked) == 1


def test_the_first_code_is_its_first_revision() -> None:
    jobs, asked = jobs_of(running({"code": None}), {})
    jobs.replace_code(running({"code": None}), "code-b", None, {})
    assert asked[-1] == (
        *("PATCH", f"{JOBS}/digits"),
        {
            "metadata": {"resourceVersion": "7", "annotations": {}},
            "spec": {"code": NEWER | {"former": None, "revision": 1}},
        },
        {"fieldValidation": "Strict"},
    )


@pytest.mark.parametrize(
    ("answers", "error", "words"),
    [
        ([a_job(uid="uid-2")], BadInputError, "digits no longer exists"),
        ([running(), refused(400)], BadInputError, "the API server refuses to change digits: no"),
        ([running(), ANOTHER, running(), refused(403)], RefusedError, "the cluster of context here refuses: no"),
    ],
)
def test_code_that_cannot_be_replaced_says_why(answers: list[Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=f"^{words}$"):
        jobs_of(*answers)[0].replace_code(running(), "code-b", None, {})


@pytest.mark.parametrize(("dry_run", "query"), [(False, {}), (True, {"dryRun": "All"})])
def test_a_job_is_replaced_strictly_or_only_tried(*, dry_run: bool, query: dict[str, str]) -> None:
    jobs, asked = jobs_of(a_job(), {})
    jobs.replace(a_job(), a_job() | {"spec": {}}, dry_run=dry_run)
    assert asked[-1] == ("PUT", f"{JOBS}/digits", a_job() | {"spec": {}}, {"fieldValidation": "Strict", **query})


def test_a_checkpoint_of_this_very_job_is_requested() -> None:
    jobs, asked = jobs_of({})
    jobs.request_checkpoint(a_job(), "now")
    body = {"metadata": {"uid": "uid-1", "annotations": {"ddpjob.dev/checkpoint-request": "now"}}}
    assert asked == [("PATCH", f"{JOBS}/digits", body, {"fieldValidation": "Strict"})]


@pytest.mark.parametrize(
    ("answers", "error", "words"),
    [
        ([a_job(uid="uid-2")], BadInputError, "digits no longer exists"),
        ([a_job(), refused(422)], BadInputError, "the API server refuses to change digits: no"),
        ([a_job(), ANOTHER, a_job(), refused(403)], RefusedError, "the cluster of context here refuses: no"),
    ],
)
def test_a_job_that_cannot_be_replaced_says_why(answers: list[Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=f"^{words}$"):
        jobs_of(*answers)[0].replace(a_job(), a_job() | {"spec": {}})


@pytest.mark.parametrize(
    ("answer", "error", "words"),
    [
        (refused(409, "AlreadyExists", name="digits"), ExistsError, "digits exists already in namespace team"),
        (refused(404, kind="namespaces", name="team"), BadInputError, "no namespace team in .*: kubectl create"),
        (refused(400), BadInputError, "the API server refuses digits: no"),
        (refused(404), BadInputError, "DDPJob is not installed in the cluster of context here: helm install"),
    ],
)
def test_a_job_that_cannot_be_made_says_why(answer: Exception, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=f"^{words}"):
        jobs_of(answer)[0].create(a_job())


@pytest.mark.parametrize(("dry_run", "query"), [(False, {}), (True, {"dryRun": "All"})])
def test_a_job_is_made_strictly_or_only_tried(*, dry_run: bool, query: dict[str, str]) -> None:
    jobs, asked = jobs_of({})
    jobs.create(a_job(), dry_run=dry_run)
    assert asked == [("POST", JOBS, a_job(), {"fieldValidation": "Strict", **query})]


@pytest.mark.parametrize(
    ("names", "guess"),
    [(["digit", "other"], "did you mean digit?"), (["a", "b"], "there is a, b"), ([], "there is none")],
)
def test_of_a_job_that_is_not_there_the_names_that_are_help(names: list[str], guess: str) -> None:
    with pytest.raises(BadInputError, match=r"^no DDPJob digits in namespace team of the cluster") as caught:
        jobs_of(GONE, a_list(*map(a_job, names)))[0].get("digits")
    assert str(caught.value).endswith(f"; {guess}")


def test_jobs_come_by_namespace_and_name_each_as_a_whole_document() -> None:
    here, there = a_job("b"), {"metadata": {"name": "a", "namespace": "zoo", "uid": "uid-2"}}
    jobs, asked = jobs_of(a_list(there, here, a_job("a")))
    found = jobs.all(everywhere=True)
    assert [(one["metadata"]["namespace"], one["metadata"]["name"]) for one in found] == [
        ("team", "a"),
        ("team", "b"),
        ("zoo", "a"),
    ]
    assert {(one["apiVersion"], one["kind"]) for one in found} == {("ddpjob.dev/v1alpha2", "DDPJob")}
    assert asked[0][1] == "/apis/ddpjob.dev/v1alpha2/ddpjobs"


def test_jobs_of_one_namespace_take_no_right_to_list_those_of_others() -> None:
    jobs, asked = jobs_of(a_list(a_job()))
    assert [job["metadata"]["name"] for job in jobs.all()] == ["digits"]
    assert asked == [("GET", JOBS, None, None)]


def test_the_only_job_is_meant_where_none_is_named() -> None:
    assert jobs_of(a_list(a_job()))[0].only()["metadata"]["name"] == "digits"
    with pytest.raises(BadInputError, match=r"^which job of .*\? a, b$"):
        jobs_of(a_list(a_job("a"), a_job("b")))[0].only()
    with pytest.raises(BadInputError, match=r"^no DDPJobs in .*; start one with"):
        jobs_of(a_list())[0].only()


def test_pods_and_events_are_those_of_this_very_job() -> None:
    jobs, asked = jobs_of(a_list(), a_list())
    jobs.pods(a_job())
    jobs.events(a_job())
    assert [query for *_, query in asked] == [
        {"labelSelector": "ddpjob.dev/job-uid=uid-1,ddpjob.dev/node"},
        {"fieldSelector": "involvedObject.uid=uid-1"},
    ]


def test_events_come_the_oldest_first_by_when_they_happened_last() -> None:
    created = {"creationTimestamp": "2026-01-01T12:00:00Z"}
    again = {"metadata": created, "lastTimestamp": "2026-01-01T12:00:09Z"}
    new = {"metadata": created, "lastTimestamp": None, "eventTime": "2026-01-01T12:00:05.000000Z"}
    plain = {"metadata": created}
    assert jobs_of(a_list(again, new, plain))[0].events(a_job()) == [plain, new, again]


OWNER = {"apiVersion": "ddpjob.dev/v1alpha2", "kind": "DDPJob", "name": "digits", "uid": "uid-1", "controller": True}
BESIDE = {"apiVersion": "v1", "kind": "ConfigMap", "name": "code", "uid": "code-1"}


def pod_document(uid: str) -> dict[str, Any]:
    labels = {"ddpjob.dev/job-uid": "uid-1", "ddpjob.dev/node": "0", "ddpjob.dev/incarnation": "1"}
    name = name_of_pod(JobRef("team", "digits", "uid-1"), 0, 1)
    metadata = {"name": name, "namespace": "team", "uid": uid, "labels": labels}
    trainer = {"name": "trainer", "env": [{"name": "DDPJOB_ATTEMPT", "value": "1"}]}
    return {"metadata": {**metadata, "ownerReferences": [BESIDE, OWNER]}, "spec": {"containers": [trainer]}}


def test_a_pod_of_the_same_name_made_since_is_not_the_same_pod() -> None:
    jobs, _ = jobs_of(pod_document("pod-1"), pod_document("pod-2"), refused(404))
    found = [jobs.pod(A_POD) for _ in range(3)]
    assert [pod and pod.uid for pod in found] == ["pod-1", None, None]


FORGED: dict[str, dict[str, Any]] = {
    "another controller": {"ownerReferences": [OWNER | {"apiVersion": "v1", "kind": "Pod"}]},
    "a controller of another API group": {"ownerReferences": [OWNER | {"apiVersion": "attacker.dev/v1"}]},
    "another job as its controller": {"ownerReferences": [OWNER | {"uid": "uid-2"}]},
    "the job as an owner that does not control it": {"ownerReferences": [OWNER | {"controller": False}]},
    "no controller": {"ownerReferences": []},
    "another name": {"name": "digits-0"},
    "labels of no pod": {"labels": {"ddpjob.dev/job-uid": "uid-1", "ddpjob.dev/node": "0"}},
}


@pytest.mark.parametrize("what", FORGED.values(), ids=FORGED)
def test_a_pod_that_only_has_a_jobs_labels_is_none_of_its(what: dict[str, Any]) -> None:
    own, forged = pod_document("pod-1"), pod_document("forged")
    forged["metadata"] |= what
    jobs, _ = jobs_of({"items": [forged, own]})
    assert [pod.uid for pod in jobs.pods(a_job())] == ["pod-1"]


FIRST, SECOND, THIRD = (f"2026-01-01T12:00:00.{part}Z" for part in ("100000000", "200000000", "300000000"))
LOG = [
    f"{FIRST} one\n".encode(),
    b"failed to watch the log: it was rotated\n",
    f"{SECOND} two  words\n".encode(),
    f"{THIRD} three\n".encode(),
]


@pytest.mark.parametrize(
    ("after", "query", "texts"),
    [
        (None, {}, ["one", "two  words", "three"]),
        ("", {"follow": "true"}, ["one", "two  words", "three"]),
        (SECOND, {"follow": "true", "sinceTime": SECOND}, ["three"]),
    ],
    ids=["what there is", "from the start on", "connected again"],
)
def test_no_line_of_a_log_is_told_twice(after: str | None, query: dict[str, str], texts: list[str]) -> None:
    jobs, asked = jobs_of(LOG)
    assert [text for _, text in jobs.log(A_POD, after)] == texts
    assert asked == [("GET", f"{PODS}/digits-0/log", None, {"container": "trainer", "timestamps": "true", **query})]


def test_what_was_installed_for_a_trainer_is_told_before_its_log_and_once() -> None:
    pod = replace(A_POD, installs=True)
    jobs, asked = jobs_of(
        [f"{FIRST} installed einops 0.8.0 in 3.1 s\n".encode()], [f"{SECOND} one\n".encode()], [], []
    )
    assert [text for _, text in jobs.log(pod, "")] == ["installed einops 0.8.0 in 3.1 s", "one"]
    assert [*jobs.log(pod, SECOND)] == [*jobs.log(pod, tail=5)] == []
    assert [query["container"] for *_, query in asked] == ["install-packages", "trainer", "trainer", "trainer"]


def test_what_was_said_of_packages_is_there_though_no_trainer_has_started_after_it() -> None:
    jobs, asked = jobs_of([f"{FIRST} error: cannot install packages\n".encode()])
    pod = replace(A_POD, installs=True, started=False)
    assert [text for _, text in jobs.log(pod, tail=5)] == ["error: cannot install packages"]
    assert asked[0][-1] == {"container": "install-packages", "timestamps": "true", "tailLines": "5"}


@pytest.mark.parametrize(
    ("after", "asked_for"),
    [
        (None, {"tailLines": "0", "sinceSeconds": "90"}),
        ("", {"tailLines": "0", "sinceSeconds": "90", "follow": "true"}),
        (SECOND, {"sinceTime": SECOND, "follow": "true"}),
    ],
    ids=["what there is", "and what comes", "from where it broke off"],
)
def test_a_log_is_read_from_where_is_asked_unless_it_goes_on(after: str | None, asked_for: dict[str, str]) -> None:
    jobs, asked = jobs_of([])
    assert [*jobs.log(A_POD, after, tail=0, since_seconds=90)] == []
    assert asked[0][-1] == {"container": "trainer", "timestamps": "true", **asked_for}


def test_once_past_what_was_told_a_log_is_told_whole_though_its_clock_goes_back() -> None:
    jobs, _ = jobs_of([*LOG, f"{FIRST} again\n".encode()])
    assert [text for _, text in jobs.log(A_POD, SECOND)] == ["three", "again"]


def test_a_job_of_a_newer_version_is_no_traceback() -> None:
    newer = a_job() | {"spec": {"template": {"spec": {"containers": []}}, "color": "red"}}
    with pytest.raises(
        ClusterError, match=r"^digits has fields that this version of ddpjob does not know: spec\.color\. Update"
    ):
        as_job(newer)


STATUS = {"status": {"nodes": 2, "network": {"statusPort": 4001}, "bookkeeping": {"incarnations": {"default": 1}}}}
TRAINS = {"spec": {"template": {"spec": {"containers": [{"name": "trainer"}]}}}}


def test_rank_0_is_asked_what_all_ranks_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Jobs, "pods", lambda *_: [replace(A_POD, name="digits-1", node=1), A_POD])
    jobs, asked = jobs_of({"ranks": []})
    assert jobs.look(a_job() | TRAINS | STATUS) == {"ranks": []}
    assert asked == [("digits-0", 4001, "/stacks")]


@pytest.mark.parametrize("pods", [[], [replace(A_POD, ended=True)], [replace(A_POD, node=1)]])
def test_where_rank_0_does_not_run_nobody_is_asked(pods: list[JobPod], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Jobs, "pods", lambda *_: pods)
    jobs, asked = jobs_of()
    with pytest.raises(BadInputError, match="rank 0 of digits is not running"):
        jobs.look(a_job() | TRAINS | STATUS)
    assert asked == []


def test_the_status_page_is_that_of_rank_0() -> None:
    jobs, asked = jobs_of({"phase": "Running"})
    assert jobs.status_page(a_job() | TRAINS | STATUS, [replace(A_POD, node=1)]) is None
    assert jobs.status_page(a_job() | TRAINS | STATUS, [A_POD]) == {"phase": "Running"}
    assert asked == [("digits-0", 4001, "/status")]


def test_without_a_port_of_its_own_the_usual_one_is_asked() -> None:
    jobs, asked = jobs_of({})
    status = {"status": {"nodes": 2, "bookkeeping": {"incarnations": {"default": 1}}}}
    jobs.status_page(a_job() | TRAINS | status, [A_POD])
    assert asked == [("digits-0", 29501, "/status")]
