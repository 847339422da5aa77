"""What `ddpjob delete` says while it waits for a job and its pods to be gone."""

import sys
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest
from ddpjob_operator.api.ownership import JobRef, name_of_pod
from ddpjob_operator.cli.cluster.delete import delete
from ddpjob_operator.client import ClusterError, RefusedError

from tests.unit.client.api import a_job, a_list, jobs_of, refused

MODULE = sys.modules[delete.__module__]
GONE = refused(404, name="digits")
POD = name_of_pod(JobRef("team", "digits", "uid-1"), 0, 1)
HOLD = "example.com/hold"
KEPT = f"digits: %s is kept by finalizer {HOLD}; the controller that set it must remove it"


@pytest.fixture(autouse=True)
def _two_seconds_between_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = count(0, 2)
    clock = SimpleNamespace(monotonic=lambda: next(seconds), sleep=lambda _: None)
    monkeypatch.setattr(MODULE, "time", clock)


def a_pod(state: str, *finalizers: str) -> dict[str, Any]:
    job, labels = a_job()["metadata"], {"ddpjob.dev/node": "0", "ddpjob.dev/incarnation": "1"}
    labels |= {"ddpjob.dev/job-name": "digits", "ddpjob.dev/job-uid": job["uid"]}
    owner = {"apiVersion": "ddpjob.dev/v1alpha2", "kind": "DDPJob", "name": "digits", "uid": job["uid"]}
    return {
        "metadata": {
            "name": POD,
            "namespace": "team",
            "uid": "pod-1",
            "labels": labels | {"app.kubernetes.io/managed-by": "ddpjob-operator"},
            "ownerReferences": [owner | {"controller": True}],
            "finalizers": [*finalizers],
        },
        "spec": {"containers": [{"name": "trainer", "env": [{"name": "DDPJOB_ATTEMPT", "value": "1"}]}]},
        "status": {"containerStatuses": [{"name": "trainer", "state": {state: {}}}]},
    }


def said_while(capsys: pytest.CaptureFixture[str], *looks: tuple[Any, Any]) -> list[str]:
    """What is said while the job and its pods are seen like this, look after look, until they are gone."""
    jobs, _ = jobs_of(a_job(), a_list(), {}, *(answer for look in looks for answer in look), GONE, a_list())
    wait = delete(jobs, "digits", wait=True)
    assert callable(wait)
    assert wait() == 0
    first, *between, last = capsys.readouterr().out.splitlines()
    assert (first, last) == ("digits: deleting it", "digits: deleted")
    return between


@pytest.mark.parametrize(("answer", "goes_on"), [(refused(403, "Forbidden"), True), (refused(404), False)])
def test_a_job_can_be_deleted_without_the_right_to_see_its_pods(answer: Exception, *, goes_on: bool) -> None:
    jobs, asked = jobs_of(a_job(), answer, {})
    if goes_on:
        assert delete(jobs, "digits", wait=False) == 0
    else:
        with pytest.raises(RefusedError):
            delete(jobs, "digits", wait=False)
    assert [method for method, *_ in asked] == ["GET", "GET", *["DELETE"] * goes_on]


def test_a_finalizer_that_keeps_an_ended_pod_is_named_once(capsys: pytest.CaptureFixture[str]) -> None:
    held = (GONE, a_list(a_pod("terminated", HOLD)))
    assert said_while(capsys, *[held] * 8) == [KEPT % f"pod {POD}"]


def test_a_finalizer_that_keeps_the_job_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    job = a_job()
    job["metadata"]["finalizers"] = [HOLD, "foregroundDeletion"]
    assert said_while(capsys, *[(job, a_list())] * 8) == [KEPT % "the job itself"]


@pytest.mark.parametrize(
    "looks",
    [
        pytest.param([(GONE, a_list(a_pod("running", HOLD)))] * 8, id="a pod that still runs"),
        pytest.param([(GONE, a_list(a_pod("terminated", HOLD)))] * 2, id="a finalizer that is soon removed"),
        pytest.param([(GONE, a_list(a_pod("terminated")))] * 8, id="no finalizer"),
    ],
)
def test_nothing_is_said_while_no_finalizer_is_in_the_way(
    looks: list[tuple[Any, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert said_while(capsys, *looks) == []


@pytest.mark.parametrize(
    ("pod", "why"), [(a_pod("terminated", HOLD), f" (kept by finalizer {HOLD})"), (a_pod("running"), "")]
)
def test_what_is_there_after_the_deadline_is_named_with_what_keeps_it(
    pod: Any, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MODULE, "DEADLINE_SECONDS", 3.0)
    jobs, _ = jobs_of(a_job(), a_list(), {}, *[GONE, a_list(pod)] * 3)
    wait = delete(jobs, "digits", wait=True)
    assert callable(wait)
    with pytest.raises(ClusterError) as late:
        wait()
    assert str(late.value) == f"digits: still there after 3 s: pod {POD}{why}"
