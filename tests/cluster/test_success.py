"""When a job has succeeded, and what happens to ranks that linger."""

from datetime import datetime

from tests.plant import Plant
from tests.support.jobs import FOR_LONG, SAVING, STUBBORN, Team, a_job, condition, exit_codes, kept


def test_a_job_has_succeeded_when_every_rank_has(team: Team) -> None:
    team.apply(a_job(nodes=3, annotations=FOR_LONG))
    team.wait("Running")
    for rank in (0, 2):
        team.tell(team.pod(rank), runs_for="0s")
    said = "2 of 3 nodes finished: rank 0 and 1 more"
    team.plant.wait("the job to tell", lambda: team.status()["message"] == said)
    assert team.status()["state"] == "Running"
    team.tell(team.pod(1), runs_for="0s")
    status = team.wait("Succeeded")
    assert condition(status, "Complete")["reason"] == "AllRanksSucceeded"
    assert exit_codes(team) == {"0": 0, "1": 0, "2": 0}


def test_rank_0_is_enough_where_the_job_says_so(team: Team) -> None:
    team.apply(a_job(nodes=3, annotations=FOR_LONG, successPolicy="RankZero"))
    team.wait("Running")
    team.tell(team.pod(0), runs_for="0s")
    status = team.wait("Succeeded")
    assert condition(status, "Complete")["reason"] == "RankZeroSucceeded"
    assert status["message"] == "Rank 0 finished"
    team.plant.wait("the others to go", lambda: exit_codes(team) == {"0": 0})
    assert not status.get("restarts")


def test_the_others_have_their_grace_when_rank_0_is_done(team: Team) -> None:
    job = a_job(annotations=STUBBORN, successPolicy="RankZero")
    job["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = 8
    team.apply(job)
    team.wait("Running")
    team.tell(team.pod(0), runs_for="0s")
    decided = datetime.fromisoformat(team.condition("SuccessCriteriaMet")["lastTransitionTime"])
    status = team.wait("Succeeded")
    assert (datetime.fromisoformat(status["completionTime"]) - decided).total_seconds() >= 7


def test_another_rank_s_success_is_not_enough(team: Team) -> None:
    team.apply(a_job(annotations=FOR_LONG, successPolicy="RankZero"))
    team.wait("Running")
    team.tell(team.pod(1), runs_for="0s")
    said = "1 of 2 nodes finished: rank 1"
    team.plant.wait("the job to tell", lambda: team.status()["message"] == said)
    team.fails(0)
    team.until("{.status.attempt}=2")
    assert team.wait("Running")["restarts"] == 1


def test_a_rank_that_lingers_after_the_others_is_stalled(team: Team) -> None:
    team.apply(a_job(annotations=FOR_LONG, finishTimeoutSeconds=2))
    team.wait("Running")
    team.tell(team.pod(0), runs_for="0s")
    team.until("{.status.attempt}=2")
    failure = team.wait("Running")["incidents"][0]
    assert (failure["node"], failure["cause"], failure["action"]) == (1, "Stalled", "Restart")
    assert failure["message"] == "did not finish within 2 s of the other ranks (finishTimeoutSeconds)"


def test_ranks_that_ended_well_because_somebody_deleted_their_pods_have_not_finished(unattended: Plant) -> None:
    team = Team(unattended)
    with team.operator():
        team.apply(a_job(annotations=SAVING))
        team.wait("Running")
    with kept(team):
        for pod in team.pods():
            team.delete("pods", pod["metadata"]["name"])
        unattended.wait("all to save", lambda: exit_codes(team) == {"0": 0, "1": 0})
        with team.operator():  # It sees them only now: an operator that is there sees the deletion first.
            team.until("{.status.attempt}=2")
            status = team.wait("Running")
    assert (status["incidents"][0]["cause"], status["incidents"][0]["action"]) == ("PodDeleted", "RestartFree")
    assert (status.get("restarts", 0), status["disruptions"]) == (0, 1)
