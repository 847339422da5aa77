"""Deadlines: they come true by themselves, and leave behind what there is to read."""

from datetime import UTC, datetime, timedelta
from typing import Any

from tests.plant import Plant
from tests.support.jobs import FOR_LONG, STUBBORN, Team, a_job, condition, silent, steered


def when(status: dict[str, Any], name: str) -> datetime:
    return datetime.fromisoformat(status[name])


def failed(team: Team, reason: str) -> dict[str, Any]:
    """The status of a job that has failed for this reason."""
    status = team.wait("Failed")
    assert condition(status, "Failed")["reason"] == reason
    return status


def test_a_silent_job_ends_at_its_deadline_and_its_pods_stay_to_be_read(team: Team) -> None:
    team.apply(a_job(annotations=FOR_LONG))
    team.wait("Running")
    pods = {pod["metadata"]["uid"] for pod in team.pods()}
    team.change(activeDeadlineSeconds=2)
    status = failed(team, "DeadlineExceeded")
    assert status["message"] == "The job was active for longer than 2 s (activeDeadlineSeconds)"
    assert when(status, "completionTime") - when(status, "startTime") >= timedelta(seconds=2)
    assert {pod["metadata"]["uid"] for pod in team.pods()} == pods
    assert {pod["status"]["reason"] for pod in team.pods()} == {"DeadlineExceeded"}
    assert not any("deletionTimestamp" in pod["metadata"] for pod in team.pods())
    assert not status.get("restarts")


def test_a_deadline_comes_true_though_nothing_else_happens(team: Team) -> None:
    team.apply(a_job(annotations=FOR_LONG, activeDeadlineSeconds=4))
    status = failed(team, "DeadlineExceeded")
    assert when(status, "completionTime") - when(status, "startTime") >= timedelta(seconds=4)


def test_at_a_deadline_pods_have_their_own_grace(team: Team) -> None:
    job = a_job(annotations=STUBBORN)
    job["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = 6
    team.apply(job)
    team.wait("Running")
    team.change(activeDeadlineSeconds=1)
    decided = datetime.fromisoformat(team.condition("FailureTarget")["lastTransitionTime"])
    status = failed(team, "DeadlineExceeded")
    assert when(status, "completionTime") - decided >= timedelta(seconds=5), "the last was killed, not asked"
    assert {pod["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] for pod in team.pods()} == {137}


def test_a_pod_that_does_not_answer_at_a_deadline_is_given_up(fake: Plant, team: Team) -> None:
    job = a_job(annotations=FOR_LONG)
    job["spec"]["template"]["spec"] |= {"terminationGracePeriodSeconds": 1, "tolerations": [{"operator": "Exists"}]}
    team.apply(job)
    team.wait("Running")
    with silent(fake, team.pods()[0]["spec"]["nodeName"]):
        team.change(activeDeadlineSeconds=1)
        failed(team, "DeadlineExceeded")


def test_a_gang_that_never_came_up_fails_and_tells_what_it_waited_for(team: Team) -> None:
    job = a_job()
    job["spec"]["template"]["spec"]["nodeSelector"] = {"example.com/never": "true"}
    team.apply(job)
    # The deadline comes after the scheduler's word: a busy scheduler may need longer for it than any deadline.
    team.plant.wait("the scheduler's word", lambda: "Unschedulable" in team.status().get("message", ""))
    team.change(startDeadlineSeconds=1)
    status = failed(team, "StartDeadlineExceeded")
    assert status["message"].startswith("Not all pods ran within 1 s (startDeadlineSeconds): ")
    assert "Unschedulable: 0/4 nodes are available" in status["message"]
    team.plant.wait("the pods to go", lambda: not team.pods())


def test_no_deadline_has_an_effect_while_an_operator_that_has_just_started_learns_the_time(
    unattended: Plant,
) -> None:
    team, began = Team(unattended), datetime.now(UTC)
    with team.operator("--clock-settling-seconds=15"):
        team.apply(a_job(activeDeadlineSeconds=1, annotations=FOR_LONG))
        status = failed(team, "DeadlineExceeded")
    assert (
        when(status, "startTime") + timedelta(seconds=1)
        < began + timedelta(seconds=15)
        <= when(status, "completionTime")
    )


def test_a_gang_whose_ranks_all_run_has_come_up_though_its_service_is_refused(fake: Plant, team: Team) -> None:
    team.apply(a_job(annotations=FOR_LONG | steered(waits_for="ContainerCreating")))
    team.condition("Created")
    team.limit("services", 0)
    team.delete("services", team.status()["network"]["service"])
    assert team.condition("Blocked")["reason"] == "QuotaExceeded"
    team.tell(*(pod["metadata"]["name"] for pod in team.pods()), waits_for=None)
    fake.wait("all to run", lambda: {pod["status"]["phase"] for pod in team.pods()} == {"Running"})
    passed = when(team.status(), "startTime") + timedelta(seconds=1)
    fake.wait("the time to pass", lambda: datetime.now(passed.tzinfo) > passed)
    team.change(startDeadlineSeconds=1)
    team.until("{.status.observedGeneration}=2")
    assert "FailureTarget" not in {one["type"] for one in team.status()["conditions"]}
    team.fails(1)  # From now on not all run; but they have.
    team.until("{.status.attempt}=2")
    assert team.status()["restarts"] == 1


def test_a_gang_that_has_run_once_is_past_the_deadline_for_its_start(team: Team) -> None:
    team.apply(a_job(annotations=FOR_LONG))
    status = team.wait("Running")
    passed = when(status, "startTime") + timedelta(seconds=1)
    team.plant.wait("the time to pass", lambda: datetime.now(passed.tzinfo) > passed)
    team.change(startDeadlineSeconds=1)
    team.fails(1)
    team.until("{.status.attempt}=2")
    assert team.wait("Running")["restarts"] == 1


def test_the_clock_stands_still_while_a_job_is_suspended_and_begins_anew_after_it(team: Team) -> None:
    team.apply(a_job(annotations=FOR_LONG))
    first = when(team.wait("Running"), "startTime")
    team.change(suspend=True)
    team.wait("Suspended")
    team.change(activeDeadlineSeconds=2)
    passed = first + timedelta(seconds=3)
    team.plant.wait("the time to pass", lambda: datetime.now(passed.tzinfo) > passed)
    assert team.status()["state"] == "Suspended"
    resumed = datetime.now(passed.tzinfo)
    team.change(suspend=False)
    status = failed(team, "DeadlineExceeded")
    assert when(status, "startTime") >= resumed
    assert when(status, "completionTime") - when(status, "startTime") >= timedelta(seconds=2)
