"""Suspension and resumption, as somebody else's queue drives them; and jobs that are somebody else's altogether."""

from datetime import datetime
from typing import Any

import pytest
from ddpjob_operator.api.contract import Label

from tests.plant import Plant
from tests.support.jobs import (
    FOR_LONG,
    STUBBORN,
    Team,
    a_job,
    condition,
    exit_codes,
    kept,
    meanwhile,
    writes,
)

MARKS = {
    "labels": {
        "kueue.x-k8s.io/queue-name": "training",
        "kueue.x-k8s.io/pod-group-name": "digits",
        "scheduling.x-k8s.io/pod-group": "digits",
    },
    "annotations": {"kueue.x-k8s.io/pod-group-total-count": "2", "scheduling.k8s.io/group-name": "digits"},
}
"""What Kueue, the coscheduling plugin and Volcano read on pods."""


def started(team: Team) -> datetime:
    return datetime.fromisoformat(team.status()["startTime"])


def test_a_job_that_is_born_suspended_has_nothing_until_it_is_resumed(team: Team) -> None:
    team.apply(a_job(annotations=FOR_LONG, suspend=True))
    status = team.wait("Suspended")
    assert "startTime" not in status
    assert condition(status, "Suspended")["reason"] == "JobSuspended"
    assert not team.all("pods") + team.all("services")
    team.change(suspend=False)
    status = team.wait("Running")
    assert (status["attempt"], condition(status, "Suspended")["status"]) == (1, "False")
    assert status["startTime"]


def test_resuming_begins_a_new_attempt_with_the_clock_at_zero_and_the_budget_kept(fake: Plant, team: Team) -> None:
    team.apply(a_job(annotations=FOR_LONG, restart={"backoffSeconds": 0}))
    team.wait("Running")
    team.fails(1)
    team.until("{.status.attempt}=2")
    team.wait("Running")
    before = started(team)
    team.change(suspend=True)
    status = team.wait("Suspended")
    assert "startTime" not in status
    fake.wait("the pods to go", lambda: all(pod["status"]["phase"] != "Running" for pod in team.pods()))
    team.change(suspend=False)
    status = team.wait("Running")
    assert started(team) > before
    assert (status["attempt"], status["restarts"], status["bookkeeping"]["budget"]["used"]) == (3, 1, 1)
    assert not status.get("disruptions")


@pytest.mark.parametrize(("policy", "codes"), [("AllRanks", {"0": 0, "1": 0}), ("RankZero", {"0": 0, "1": 143})])
def test_ranks_that_saved_and_ended_with_0_start_again_though_their_pods_are_still_there(
    fake: Plant, team: Team, policy: str, codes: dict[str, int]
) -> None:
    team.apply(a_job(annotations=FOR_LONG, successPolicy=policy))
    team.wait("Running")
    team.tell(*(team.pod(int(rank)) for rank, code in codes.items() if code == 0), saves="true")
    with kept(team):
        team.change(suspend=True)
        team.wait("Suspended")
        fake.wait("all to have ended", lambda: exit_codes(team) == codes)
        team.change(suspend=False)
        team.until("{.status.attempt}=2")
        status = team.wait("Running")
    assert not {"SuccessCriteriaMet", "Complete"} & {one["type"] for one in status["conditions"]}
    assert not status.get("restarts", 0) + status.get("disruptions", 0)
    team.finish()
    team.wait("Succeeded")


def test_what_changed_while_it_was_suspended_is_what_goes_on(team: Team) -> None:
    job = a_job(annotations=FOR_LONG)
    team.apply(job)
    team.wait("Running")
    team.change(suspend=True)
    team.wait("Suspended")
    job["spec"]["nodes"] = 3
    job["spec"]["template"]["spec"]["containers"][0]["image"] = "another"
    team.apply(job | {"spec": job["spec"] | {"suspend": False}})
    team.until("{.status.display.ready}=3/3")
    assert [pod["spec"]["containers"][0]["image"] for pod in team.pods()] == ["another"] * 3


def test_suspending_leaves_pods_their_whole_grace(fake: Plant, team: Team) -> None:
    job = a_job(annotations=STUBBORN)
    job["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = 7
    team.apply(job)
    team.wait("Running")
    team.change(suspend=True)
    team.until("{.status.state}=Suspending")
    fake.wait("the pods to be told", lambda: all(grace(pod) is not None for pod in team.pods()))
    assert {grace(pod) for pod in team.pods()} == {7}
    assert team.status()["message"] == "Waiting for 2 pods to save and stop"
    team.wait("Suspended")


def grace(pod: dict[str, Any]) -> int | None:
    """How many seconds a pod has that is being deleted."""
    seconds: int | None = pod["metadata"].get("deletionGracePeriodSeconds")
    return seconds


def test_marks_of_queues_and_gang_schedulers_reach_the_pods(team: Team) -> None:
    job = a_job()
    job["spec"]["template"]["metadata"] = MARKS
    team.apply(job)
    team.wait("Succeeded")
    for pod in team.pods():
        for kind, marks in MARKS.items():
            assert marks.items() <= pod["metadata"][kind].items()
        assert pod["metadata"]["labels"][Label.JOB_NAME] == "digits"


def test_a_gate_is_respected_and_told(team: Team) -> None:
    job = a_job()
    job["spec"]["template"]["spec"]["schedulingGates"] = [{"name": "example.com/quota"}]
    team.apply(job)
    team.wait("Starting")
    team.plant.wait("the job to tell of the gate", lambda: "SchedulingGated" in team.status()["message"])
    assert team.status()["message"].startswith("0 of 2 pods running; rank 0 and 1 more: SchedulingGated: ")
    for pod in team.pods():
        team.plant.api.patch(team.path("pods", pod["metadata"]["name"]), {"spec": {"schedulingGates": None}})
    assert team.wait("Succeeded")["attempt"] == 1


def test_a_job_of_another_manager_is_never_touched(fake: Plant, team: Team) -> None:
    team.apply(a_job(managedBy="example.com/other"))
    meanwhile(team)
    team.change(suspend=True)
    team.change(suspend=False, nodes=3, activeDeadlineSeconds=1, ttlSecondsAfterFinished=0)
    end = {"type": "Failed", "status": "True", "reason": "Other", "message": "", "observedGeneration": 1}
    now = "2026-01-01T00:00:00Z"
    team.say(state="Failed", completionTime=now, conditions=[end | {"lastTransitionTime": now}])
    before = team.job()
    with team.operator():
        meanwhile(team)
    assert team.job() == before
    assert not team.pods()
    assert writes(fake, team.namespace)["delete ddpjobs"] == 0


@pytest.mark.parametrize("manager", ["ddpjob.dev/operator"])
def test_a_job_that_names_our_manager_is_ours(team: Team, manager: str) -> None:
    team.apply(a_job(managedBy=manager))
    team.wait("Succeeded")
