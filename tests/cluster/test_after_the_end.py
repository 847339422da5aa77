"""What is left of a finished job, for how long, and that it stays finished."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from ddpjob_operator.api.contract import Label

from tests.plant import Plant
from tests.support.jobs import FOR_LONG, Team, a_job, condition, meanwhile, writes


def left(team: Team) -> dict[str, str]:
    """The phase of each rank's pod that is there and is not on its way out."""
    return {
        pod["metadata"]["labels"][Label.NODE]: pod["status"]["phase"]
        for pod in team.pods()
        if "deletionTimestamp" not in pod["metadata"]
    }


def gone(plant: Plant, team: Team) -> None:
    plant.wait("the job and all that is its own to go", team.empty)


def test_a_finished_job_goes_with_all_of_its_own_when_its_time_has_come(fake: Plant, team: Team) -> None:
    team.apply(a_job(ttlSecondsAfterFinished=1, network={"policy": "Enabled"}))
    gone(fake, team)
    assert writes(fake, team.namespace)["delete ddpjobs"] == 1
    assert team.events()["Complete"] == 1


def test_a_failed_job_goes_too(fake: Plant, team: Team) -> None:
    team.apply(a_job(annotations=FOR_LONG, activeDeadlineSeconds=1, ttlSecondsAfterFinished=0))
    gone(fake, team)


def test_a_job_without_a_time_stays_until_it_gets_one(fake: Plant, team: Team) -> None:
    team.apply(a_job())
    team.wait("Succeeded")
    meanwhile(team)
    assert team.status()["state"] == "Succeeded"
    team.change(ttlSecondsAfterFinished=0)
    gone(fake, team)


@pytest.mark.parametrize("ttl", [3600, None])
def test_who_wants_to_keep_a_job_after_all_can_do_so_until_it_is_gone(unattended: Plant, ttl: int | None) -> None:
    """No operator looks while the time passes, so that the change comes in time however slow the machine is."""
    team = Team(unattended)
    with team.operator() as operator:
        team.apply(a_job())
        team.wait("Succeeded")
        operator.kill()
    team.change(ttlSecondsAfterFinished=1)
    over = datetime.fromisoformat(team.status()["completionTime"]) + timedelta(seconds=1)
    unattended.wait("its time to be over", lambda: datetime.now(over.tzinfo) > over)
    team.change(ttlSecondsAfterFinished=ttl)
    with team.operator():
        meanwhile(team)
        assert team.status()["state"] == "Succeeded"


@pytest.mark.parametrize(
    ("policy", "stays"),
    [
        ("None", {"0": "Running", "1": "Failed"}),
        ("Running", {"1": "Failed"}),
        ("All", {}),
    ],
)
def test_what_stays_of_a_job_that_has_failed(fake: Plant, team: Team, policy: str, stays: dict[str, str]) -> None:
    team.apply(a_job(annotations=FOR_LONG, cleanPodPolicy=policy, restart={"maxRestarts": 0}))
    team.wait("Running")
    team.fails(1)
    assert condition(team.wait("Failed"), "Failed")["reason"] == "MaxRestartsExceeded"
    fake.wait(f"{stays} to be left", lambda: left(team) == stays)
    meanwhile(team)
    assert left(team) == stays


@pytest.mark.parametrize(("policy", "stays"), [("Running", 2), ("All", 0)])
def test_what_stays_of_a_job_that_has_succeeded(fake: Plant, team: Team, policy: str, stays: int) -> None:
    team.apply(a_job(cleanPodPolicy=policy))
    team.wait("Succeeded")
    fake.wait(f"{stays} pods to be left", lambda: len(team.pods()) == stays)
    meanwhile(team)
    assert len(left(team)) == stays


def test_what_stays_can_be_removed_later(fake: Plant, team: Team) -> None:
    team.apply(a_job())
    team.wait("Succeeded")
    team.change(cleanPodPolicy="All")
    fake.wait("the pods to go", lambda: not team.pods())


@pytest.mark.parametrize(
    "change",
    [
        {"nodes": 3},
        {"suspend": True},
        {"restart": {"maxRestarts": 9}},
        {"activeDeadlineSeconds": 1},
        {"pods": "gone"},
    ],
    ids=str,
)
def test_finished_means_finished(team: Team, change: dict[str, Any]) -> None:
    team.apply(a_job())
    before = team.wait("Succeeded")
    meanwhile(team)
    if "pods" in change:
        for pod in team.pods():
            team.delete("pods", pod["metadata"]["name"], wait=True)
    else:
        team.change(**change)
    team.change(suspend=False)
    meanwhile(team)
    after = team.status()
    assert all(pod["status"]["phase"] == "Succeeded" for pod in team.pods())
    same = ("state", "message", "attempt", "completionTime", "startTime")
    assert {name: after[name] for name in same} == {name: before[name] for name in same}


def test_the_pod_that_failed_first_stays_for_the_last_three_incidents(team: Team) -> None:
    team.apply(a_job(annotations=FOR_LONG, restart={"backoffSeconds": 0}))
    first = []
    for attempt in range(1, 5):
        team.until(f"{{.status.attempt}}={attempt}")
        team.until("{.status.state}=Running")
        first.append(team.fails(attempt % 2, exit_code=str(attempt)))
    team.until("{.status.attempt}=5")
    team.wait("Running")
    kept = {pod["metadata"]["name"] for pod in team.pods() if pod["status"]["phase"] == "Failed"}
    assert kept == set(first[-3:])
    assert [one["pod"] for one in team.status()["incidents"]] == first[::-1]
    team.finish()
    team.wait("Succeeded")
    meanwhile(team)
    assert {pod["metadata"]["name"] for pod in team.pods() if pod["status"]["phase"] == "Failed"} == kept
