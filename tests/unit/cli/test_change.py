"""What a change of a job on a cluster asks for and says, also where a tool will undo it."""

from collections.abc import Callable
from typing import Any

import pytest
from ddpjob_operator.api import BadInputError
from ddpjob_operator.cli.cluster.change import cancel, resume, scale, suspend
from ddpjob_operator.client import Jobs

from tests.unit.client.api import jobs_of

KEPT = "digits: Argo CD resets this job to what its repository says; set {} there too\n"
CHANGES: dict[str, tuple[Callable[[Jobs, str], int], bool, str]] = {
    "suspend": (suspend, False, "spec.suspend"),
    "resume": (resume, True, "spec.suspend"),
    "scale": (lambda jobs, name: scale(jobs, name, 2), False, "spec.nodes"),
}


def a_job(*, suspend: bool = False, cancel: bool = False, **metadata: Any) -> dict[str, Any]:
    spec = {
        "suspend": suspend,
        "cancel": cancel,
        "template": {"spec": {"containers": [{"name": "trainer", "image": "any"}]}},
    }
    named = {"name": "digits", "namespace": "team", "uid": "u", **metadata}
    return {"apiVersion": "ddpjob.dev/v1alpha2", "kind": "DDPJob", "metadata": named, "spec": spec}


@pytest.mark.parametrize(("change", "suspended", "field"), CHANGES.values(), ids=CHANGES)
def test_a_change_that_a_tool_will_undo_is_told(
    change: Callable[[Jobs, str], int], field: str, capsys: pytest.CaptureFixture[str], *, suspended: bool
) -> None:
    for annotations, told in (({"argocd.argoproj.io/tracking-id": "a"}, True), ({"other": "a"}, False), ({}, False)):
        change(jobs_of(a_job(suspend=suspended, annotations=annotations), {})[0], "digits")
        assert (KEPT.format(field) in capsys.readouterr().out) is told


def test_a_job_is_cancelled_once(capsys: pytest.CaptureFixture[str]) -> None:
    jobs, asked = jobs_of(a_job(), {})
    assert cancel(jobs, "digits") == 0
    assert [method for method, *_ in asked] == ["GET", "PATCH"]
    jobs, asked = jobs_of(a_job(cancel=True))
    assert cancel(jobs, "digits") == 0
    assert [method for method, *_ in asked] == ["GET"]
    assert capsys.readouterr().out == (
        "digits: cancelled; its pods save and stop, and stay with their logs\ndigits: cancelled already\n"
    )


def that_ends(*kinds: str, reason: str, cancel: bool) -> dict[str, Any]:
    """A job whose end is decided, with these conditions."""
    since = {"status": "True", "observedGeneration": 1, "lastTransitionTime": "2026-01-01T00:00:00Z"}
    conditions = [{"type": kind, "reason": reason, "message": f"For {reason}", **since} for kind in kinds]
    state = {"Complete": "Succeeded", "Failed": "Failed"}.get(kinds[-1], "Running")
    return a_job(cancel=cancel) | {"status": {"state": state, "conditions": conditions}}


@pytest.mark.parametrize("cancel_asked", [True, False])
@pytest.mark.parametrize(
    ("kinds", "reason", "said"),
    [
        (["FailureTarget"], "Cancelled", "digits: cancelled already\n"),
        (["FailureTarget", "Failed"], "Cancelled", "digits: cancelled already\n"),
        (["FailureTarget"], "MaxRestartsExceeded", "digits: ending already: For MaxRestartsExceeded\n"),
        (["SuccessCriteriaMet"], "AllRanksSucceeded", "digits: ending already: For AllRanksSucceeded\n"),
    ],
)
def test_of_a_job_whose_end_is_decided_cancel_says_what_for(
    kinds: list[str], reason: str, said: str, capsys: pytest.CaptureFixture[str], *, cancel_asked: bool
) -> None:
    jobs, asked = jobs_of(that_ends(*kinds, reason=reason, cancel=cancel_asked))
    assert cancel(jobs, "digits") == 0
    assert capsys.readouterr().out == said
    assert [method for method, *_ in asked] == ["GET"]


@pytest.mark.parametrize("cancel_asked", [True, False])
@pytest.mark.parametrize(
    ("kinds", "state"),
    [(["SuccessCriteriaMet", "Complete"], "succeeded"), (["FailureTarget", "Failed"], "failed")],
)
def test_a_job_that_has_ended_before_it_could_be_cancelled_is_an_error(
    kinds: list[str], state: str, *, cancel_asked: bool
) -> None:
    with pytest.raises(BadInputError, match=f"digits has {state} and cannot be changed"):
        cancel(jobs_of(that_ends(*kinds, reason="Any", cancel=cancel_asked))[0], "digits")


KEEPS = {"checkpoint": {"path": "s3://bucket/digits"}}
LOSES = "it has neither a checkpoint nor a volume that outlives its pods"
RAN = {"attempt": 1}
GO_ON = "Go on with: ddpjob resume digits -n team"
STOPS, FOLLOW = "its pods save and stop", "and new ones go on"


@pytest.mark.parametrize(
    ("change", "spec", "status", "said", "sent"),
    [
        (suspend, KEEPS, {}, [f"digits: suspended; {STOPS}", GO_ON], {"suspend": True}),
        (
            suspend,
            {},
            RAN,
            [f"digits: suspended; its pods stop, and on resume it starts over: {LOSES}", GO_ON],
            {"suspend": True},
        ),
        (suspend, {"suspend": True}, {}, ["digits: suspended already"], None),
        (resume, {"suspend": True}, {}, ["digits: resumed"], {"suspend": False}),
        (resume, {}, {}, ["digits: not suspended"], None),
        (lambda jobs, name: scale(jobs, name, 1), {}, RAN, ["digits: already has 1 node"], None),
        (lambda jobs, name: scale(jobs, name, 3), {}, {}, ["digits: scaled from 1 to 3 nodes"], {"replicas": 3}),
        (
            lambda jobs, name: scale(jobs, name, 3),
            {"suspend": True},
            RAN,
            ["digits: scaled from 1 to 3 nodes"],
            {"replicas": 3},
        ),
        (
            lambda jobs, name: scale(jobs, name, 3),
            KEEPS,
            RAN,
            [f"digits: scaled from 1 to 3 nodes; {STOPS}, {FOLLOW}"],
            {"replicas": 3},
        ),
        (
            lambda jobs, name: scale(jobs, name, 3),
            {},
            RAN,
            [f"digits: scaled from 1 to 3 nodes; its pods stop, and new ones start over: {LOSES}"],
            {"replicas": 3},
        ),
    ],
)
def test_a_change_says_what_becomes_of_the_pods_and_asks_for_nothing_that_is_so_already(
    change: Callable[[Jobs, str], int],
    spec: dict[str, Any],
    status: dict[str, Any],
    capsys: pytest.CaptureFixture[str],
    *,
    said: list[str],
    sent: dict[str, Any] | None,
) -> None:
    document = a_job(suspend=False)
    jobs, asked = jobs_of({**document, "spec": document["spec"] | spec, "status": status}, {})
    assert change(jobs, "digits") == 0
    assert [line for line in capsys.readouterr().out.splitlines() if "utorial" not in line] == said
    assert [body["spec"] for method, _, body, _ in asked if method == "PATCH"] == ([] if sent is None else [sent])


def test_no_node_is_no_size() -> None:
    with pytest.raises(BadInputError, match=r"--nodes 0 is too small; .*: ddpjob suspend digits"):
        scale(jobs_of()[0], "digits", 0)


@pytest.mark.parametrize("change", [change for change, *_ in CHANGES.values()], ids=CHANGES)
def test_a_job_that_has_ended_is_not_changed(change: Callable[[Jobs, str], int]) -> None:
    ended = {"type": "Failed", "status": "True", "reason": "x", "message": "", "observedGeneration": 1}
    ended |= {"lastTransitionTime": "2026-01-01T00:00:00Z"}
    document = a_job(suspend=False) | {"status": {"state": "Failed", "conditions": [ended]}}
    says = "digits has failed and cannot be changed. To run it again, first: ddpjob delete digits -n team"
    with pytest.raises(BadInputError, match=says):
        change(jobs_of(document)[0], "digits")
