"""In which order a job and its code are brought to a cluster, and what is left where that ends halfway."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from ddpjob_operator.api import BadInputError
from ddpjob_operator.client import ClusterError, Document, ExistsError, RefusedError, UnreachableError
from ddpjob_operator.client.archive import File, pack
from ddpjob_operator.client.code import Code, Leftovers, config_map, leftovers
from ddpjob_operator.client.errors import NoNamespaceError
from ddpjob_operator.client.submission import replace, send

from .api import JOBS, a_cluster, a_list, jobs_of, refused

MAPS = "/api/v1/namespaces/team/configmaps"
NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
CODE = config_map(pack([File("train.py", b"print(1)")]), "team")
NAME = CODE["metadata"]["name"]
OWNER = {"apiVersion": "ddpjob.dev/v1alpha2", "kind": "DDPJob", "name": "train", "uid": "uid-1"}
THERE = refused(409, "AlreadyExists", name=NAME)
CONFLICT = refused(409, "Conflict", name=NAME)
GONE = refused(404, name=NAME)


def a_map(name: str = NAME, version: str = "5", age: timedelta = timedelta(0), *owners: Any) -> Document:
    """Metadata of a ConfigMap that is there."""
    stamp = (NOW - age).strftime("%Y-%m-%dT%H:%M:%SZ")
    known = {"name": name, "uid": f"uid-{name}", "resourceVersion": version, "creationTimestamp": stamp}
    return known | ({"ownerReferences": list(owners)} if owners else {})


def there(version: str = "5", *owners: Any) -> Document:
    return CODE | {"metadata": a_map(NAME, version, timedelta(0), *owners)}


def a_job(name: str = "train", code: str = NAME, uid: str = "uid-1", **status: Any) -> Document:
    """A job on the cluster, with its code."""
    volumes = [{"name": "code-archive", "configMap": {"name": code}}]
    template = {"spec": {"containers": [{"name": "trainer"}], "volumes": volumes}}
    metadata = {"name": name, "namespace": "team", "uid": uid, "creationTimestamp": "2026-01-01T12:00:00Z"}
    return {"metadata": {**metadata, "generation": 2}, "spec": {"template": template}, "status": status}


JOB = a_job()


def said(asked: list[tuple[Any, ...]]) -> list[str]:
    """The requests: method, what it is about, and whether it is a dry run."""
    return [
        f"{method} {'job' if path.startswith(JOBS) else 'map'}{' dry' if (query or {}).get('dryRun') else ''}"
        for method, path, _, query in asked
    ]


def test_both_are_tried_then_the_code_is_made_then_the_job_then_it_owns_the_code() -> None:
    jobs, asked = jobs_of({}, {}, there(), JOB, {}, [])
    assert send(jobs, JOB, CODE) == JOB
    assert said(asked) == ["POST job dry", "POST map dry", "POST map", "POST job", "PATCH map", "GET map"]
    assert asked[2][2]["immutable"] is True
    assert asked[4][1:3] == (f"{MAPS}/{NAME}", {"metadata": {"resourceVersion": "5", "ownerReferences": [OWNER]}})
    assert "blockOwnerDeletion" not in OWNER, "for it some clusters ask a right that users do not have"


@pytest.mark.parametrize("answer", [refused(422, "Invalid"), refused(403, "Forbidden")])
def test_where_the_job_is_refused_its_code_goes_and_nothing_else(answer: Exception) -> None:
    jobs, asked = jobs_of({}, {}, there(), answer, {})
    with pytest.raises((BadInputError, ClusterError)):
        send(jobs, JOB, CODE)
    method, path, body, _ = asked[-1]
    assert (method, path) == ("DELETE", f"{MAPS}/{NAME}")
    assert body == {"preconditions": {"uid": f"uid-{NAME}", "resourceVersion": "5"}}, "unless somebody owns it by now"


def test_where_nobody_knows_whether_the_job_was_made_its_code_stays() -> None:
    jobs, asked = jobs_of({}, {}, there(), refused(500))
    with pytest.raises(ClusterError):
        send(jobs, JOB, CODE)
    assert said(asked)[-1] == "POST job"


def test_what_is_refused_at_once_makes_nothing() -> None:
    for answers, error in (
        ([refused(409, "AlreadyExists", name="train")], ExistsError),
        ([{}, refused(403, "Forbidden")], ClusterError),
        ([refused(404)], BadInputError),
    ):
        jobs, asked = jobs_of(*answers)
        with pytest.raises(error):
            send(jobs, JOB, CODE)
        assert all("dry" in request for request in said(asked))


def test_the_same_code_is_there_once_and_is_owned_by_each_that_runs_it() -> None:
    other = {**OWNER, "name": "other", "uid": "uid-0"}
    jobs, asked = jobs_of({}, THERE, THERE, there("7", other), JOB, {}, [])
    send(jobs, JOB, CODE)
    assert said(asked)[2:6] == ["POST map", "GET map", "POST job", "PATCH map"]
    assert asked[5][2]["metadata"] == {"resourceVersion": "7", "ownerReferences": [other, OWNER]}


def test_code_that_goes_before_it_is_looked_at_is_made_and_another_refusal_ends_all() -> None:
    jobs, asked = jobs_of({}, THERE, THERE, GONE, there(), JOB, {}, [])
    assert send(jobs, JOB, CODE) == JOB
    assert said(asked)[2:6] == ["POST map", "GET map", "POST map", "POST job"]
    jobs, asked = jobs_of({}, THERE, THERE, refused(403))
    with pytest.raises(ClusterError, match=r"refuses: no$"):
        send(jobs, JOB, CODE)
    assert said(asked)[2:] == ["POST map", "GET map"]


NO_NAMESPACE = refused(404, kind="namespaces")


@pytest.mark.parametrize(
    ("do", "answer", "error"),
    [
        (lambda code: code.remove(a_map()), refused(500), UnreachableError),
        (lambda code: code.remove(a_map()), refused(403), RefusedError),
        (lambda code: code._own(a_map(), []), refused(403), RefusedError),
        (lambda code: code._make(CODE, {}), refused(422), RefusedError),
        (lambda code: code._make(CODE, {}), refused(403, "Forbidden"), ClusterError),
        (lambda code: code._make(CODE, {}), NO_NAMESPACE, NoNamespaceError),
    ],
)
def test_a_refusal_that_nothing_explains_ends_all(
    do: Callable[[Code], Any], answer: Exception, error: type[Exception]
) -> None:
    with pytest.raises(error):
        do(Code(a_cluster(answer)))


@pytest.mark.parametrize("answer", [GONE, CONFLICT], ids=["gone", "changed"])
def test_code_that_somebody_else_has_changed_meanwhile_is_left_alone(answer: Exception) -> None:
    Code(a_cluster(answer)).remove(a_map())
    assert Code(a_cluster(answer))._own(a_map(), []) is False


def test_where_it_was_there_before_a_refusal_leaves_it() -> None:
    jobs, asked = jobs_of({}, THERE, THERE, there(), refused(422, "Invalid"))
    with pytest.raises(BadInputError):
        send(jobs, JOB, CODE)
    assert "DELETE map" not in said(asked)


def test_code_that_somebody_changes_at_the_same_time_is_looked_at_anew_and_gone_it_is_made_anew() -> None:
    jobs, asked = jobs_of({}, {}, there(), JOB, CONFLICT, THERE, there("6"), GONE, there("8"), {}, [])
    send(jobs, JOB, CODE)
    assert said(asked)[4:10] == ["PATCH map", "POST map", "GET map", "PATCH map", "POST map", "PATCH map"]
    assert asked[9][2]["metadata"]["resourceVersion"] == "8"


def test_what_has_the_codes_name_and_is_something_else_is_never_run() -> None:
    foreign = there() | {"binaryData": {"code.zip": "AAAA"}}
    for found in (foreign, there() | {"immutable": False}):
        jobs, _ = jobs_of({}, THERE, THERE, found)
        with pytest.raises(
            BadInputError, match=f"ConfigMap {NAME}, in which this code is to be stored, holds something else"
        ):
            send(jobs, JOB, CODE)


OLD, NEW = timedelta(minutes=11), timedelta(minutes=9)
LOOSE: dict[str, tuple[list[Document], list[Document], list[str], list[str]]] = {
    "no job, and old": ([a_map("x", "1", OLD)], [], [], ["x"]),
    "no job yet: its client may be about to make one": ([a_map("x", "1", NEW)], [], [], []),
    "its job was made": ([a_map("x", "1", OLD)], [a_job(code="x")], ["x"], []),
    "another's job": ([a_map("x", "1", OLD)], [a_job(code="y")], [], ["x"]),
}


@pytest.mark.parametrize(("loose", "jobs", "adopted", "orphaned"), LOOSE.values(), ids=LOOSE)
def test_what_becomes_of_code_that_nobody_owns(
    loose: list[Document], jobs: list[Document], adopted: list[str], orphaned: list[str]
) -> None:
    left = leftovers(loose, jobs, NOW)
    assert ([*left.adopted], [one["name"] for one in left.orphaned]) == (adopted, orphaned)


def test_jobs_are_listed_only_where_something_is_left() -> None:
    assert leftovers([], [], NOW) == Leftovers({}, ())
    owned = a_map("x", "1", OLD, OWNER)
    jobs, asked = jobs_of({}, {}, there(), JOB, {}, [owned])
    send(jobs, JOB, CODE)
    assert said(asked)[-1] == "GET map"


def test_the_next_submit_clears_what_a_client_left_that_died() -> None:
    adopted, orphan = a_map("ran", "3", OLD), a_map("never", "4", OLD)
    ran = a_job("ran", "ran", "uid-9")
    jobs, asked = jobs_of({}, {}, there(), JOB, {}, [adopted, orphan], a_list(JOB, ran), {}, {})
    send(jobs, JOB, CODE)
    (_, owned, body, _), (_, removed, conditions, _) = asked[-2:]
    assert (owned, [one["uid"] for one in body["metadata"]["ownerReferences"]]) == (f"{MAPS}/ran", ["uid-9"])
    assert (removed, conditions["preconditions"]["resourceVersion"]) == (f"{MAPS}/never", "4")


def test_what_cannot_be_cleared_does_not_undo_what_was_submitted() -> None:
    jobs, _ = jobs_of({}, {}, there(), JOB, refused(403, "Forbidden"))
    assert send(jobs, JOB, CODE) == JOB


def suspended(generation: int) -> dict[str, Any]:
    condition = {"type": "Suspended", "status": "True", "reason": "JobSuspended", "message": ""}
    condition |= {"lastTransitionTime": "2026-01-01T12:00:00Z", "observedGeneration": generation}
    return {"state": "Suspended", "observedGeneration": generation, "conditions": [condition]}


def test_a_job_that_runs_saves_and_stops_then_is_changed_and_goes_on_and_its_old_code_goes_last() -> None:
    before = a_job(code="old")
    jobs, asked = jobs_of(
        *(before, {}, {}),  # both are tried
        there("5"),
        *({}, {}),  # the job owns its new code, and is suspended
        a_list(before),
        *([], a_list(a_job(code="old", **suspended(2)))),  # at first it is not, as far as its operator has seen
        *(before, refused(409, "Conflict", name="train"), before, JOB),
        [a_map("old", "3", NEW, OWNER), a_map(NAME, "5", NEW, OWNER)],
        {},
        *(THERE, there("6", OWNER)),
        [],
    )
    told: list[str] = []
    assert replace(jobs, before, JOB, CODE, told.append) == JOB
    assert [request for request in said(asked) if not request.startswith("GET")] == [
        *(
            "PUT job dry",
            "POST map dry",
            "POST map",
            "PATCH map",
            "PATCH job",
            "PUT job",
            "PUT job",
            "DELETE map",
            "POST map",
        ),
    ]
    puts = [body for method, _, body, _ in asked if method == "PUT"]
    assert [body["spec"].get("suspend", False) for body in puts] == [True, False, False]
    assert {body["metadata"]["uid"] for body in puts} == {"uid-1"}
    assert next(path for method, path, *_ in asked if method == "DELETE") == f"{MAPS}/old"
    assert told == ["train: its pods save and stop"]


def test_old_code_that_another_job_runs_too_only_loses_an_owner() -> None:
    other = {**OWNER, "name": "other", "uid": "uid-0"}
    before = a_job(code="old", **suspended(2))
    jobs, asked = jobs_of(
        *(before, {}, {}, there("5"), {}, {}, a_list(before), before, JOB),
        [a_map("old", "3", NEW, OWNER, other)],
        *({}, THERE, there("6", OWNER), []),
    )
    replace(jobs, before, JOB, CODE, print)
    released = next(body for method, path, body, _ in asked if (method, path) == ("PATCH", f"{MAPS}/old"))
    assert released["metadata"] == {"resourceVersion": "3", "ownerReferences": [other]}
