"""The life of a job on a cluster, with nodes that only say that they run its pods."""

from collections import Counter
from typing import Any

import pytest
from ddpjob_operator.api.contract import MAX_NAME_LENGTH, Label

from tests.plant import Plant
from tests.support.jobs import FOR_LONG, STUBBORN, Team, a_job, condition, silent, writes


def test_a_job_runs_to_its_end_with_few_writes_and_two_events(fake: Plant, team: Team) -> None:
    team.apply(a_job(nodes=4))
    status = team.wait("Succeeded")
    assert (status["attempt"], status["restarts"], status["display"]["ready"]) == (1, 0, "4/4")
    pods = team.pods()
    assert sorted(pod["metadata"]["labels"][Label.NODE] for pod in pods) == ["0", "1", "2", "3"]
    fake.wait("two events", lambda: sum(team.events().values()) == 2)
    assert team.events() == {"Running": 1, "Complete": 1}
    once = ("create services", "create secrets", "create networkpolicies", "patch ddpjobs")  # The last one marks it.
    due = Counter({"create pods": 4, "create events": 2} | dict.fromkeys(once, 1))
    fake.wait("all that it writes", lambda: writes(fake, team.namespace) >= due)
    made = writes(fake, team.namespace)
    assert made.pop("patch ddpjobs/status") <= 4
    assert made == due


def test_a_failed_rank_restarts_the_gang_and_costs_one_restart(team: Team) -> None:
    team.apply(a_job(annotations=FOR_LONG))
    team.wait("Running")
    pod = team.fails(1, exit_code="3")
    team.until("{.status.attempt}=2")
    status = team.wait("Running")
    assert (status["restarts"], status["disruptions"]) == (1, 0)
    assert (status["incidents"][0]["node"], status["incidents"][0]["exitCode"]) == (1, 3)
    assert status["incidents"][0]["pod"] == pod
    team.finish()
    team.wait("Succeeded")


def test_a_secret_that_somebody_deletes_is_made_anew_with_the_gang_that_needs_it(team: Team) -> None:
    team.apply(a_job(annotations=FOR_LONG))
    team.wait("Running")
    former = team.all("secrets") + team.pods()
    team.delete("secrets", former[0]["metadata"]["name"], wait=True)
    team.fails(1)
    team.until("{.status.attempt}=2")
    team.wait("Running")
    (secret,) = team.all("secrets")
    gang = [pod for pod in team.pods() if pod["metadata"]["labels"][Label.INCARNATION] == "2"]
    assert [mounted(pod) for pod in gang] == [secret["metadata"]["name"]] * 2
    assert secret["metadata"]["uid"] not in {one["metadata"]["uid"] for one in former}


def mounted(pod: dict[str, Any]) -> str:
    """The name of the Secret that a pod gets."""
    return next(one["secret"]["secretName"] for one in pod["spec"]["volumes"] if "secret" in one)


def test_a_pod_deleted_by_hand_is_a_disruption_and_costs_nothing(team: Team) -> None:
    team.apply(a_job(annotations=FOR_LONG))
    team.wait("Running")
    team.delete("pods", team.pods()[0]["metadata"]["name"])
    team.until("{.status.attempt}=2")
    status = team.wait("Running")
    assert (status["restarts"], status["disruptions"]) == (0, 1)


@pytest.mark.full("test_disruptions.py loses nodes in the same way, and looks at more")
def test_the_loss_of_a_node_restarts_the_gang_although_its_pod_never_goes(fake: Plant, team: Team) -> None:
    job = a_job(annotations=FOR_LONG)
    job["spec"]["template"]["spec"]["tolerations"] = [
        {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 1}
        for key in ("unreachable", "not-ready")
    ]
    team.apply(job)
    team.wait("Running")
    lost = team.pods()[0]
    node = lost["spec"]["nodeName"]
    with silent(fake, node):
        team.until("{.status.attempt}=2", seconds=90)
        status = team.wait("Running", seconds=90)
        assert (status["restarts"], status["disruptions"]) == (0, 1)
        assert any(pod["metadata"]["uid"] == lost["metadata"]["uid"] for pod in team.pods()), "still terminating"
        team.finish()
        team.wait("Succeeded")


def test_suspension_takes_the_pods_away_and_resuming_brings_new_ones(fake: Plant, team: Team) -> None:
    team.apply(a_job(annotations=FOR_LONG))
    team.wait("Running")
    team.change(suspend=True)
    team.wait("Suspended")
    fake.wait("the pods to go", lambda: not team.pods())
    team.change(suspend=False)
    assert team.wait("Running")["attempt"] == 2


def test_the_longest_name_is_long_enough_for_everything_made_of_it(team: Team) -> None:
    name = "d" * MAX_NAME_LENGTH
    team.apply(a_job(name, nodes=1))
    team.wait("Succeeded", name)


def test_a_job_made_anew_under_its_name_does_not_wait_for_pods_of_the_former_one(team: Team) -> None:
    team.apply(a_job(annotations=STUBBORN))
    team.wait("Running")
    former = {pod["metadata"]["uid"] for pod in team.pods()}
    team.delete("ddpjobs", "digits", wait=True)
    team.apply(a_job())
    team.wait("Succeeded")
    left = {pod["metadata"]["uid"] for pod in team.pods()} & former
    assert left, "the former pods still terminate: that is what this is about"
    assert team.status()["attempt"] == 1


def test_a_finished_job_lets_no_container_go_on(team: Team) -> None:
    team.apply(a_job())
    team.wait("Succeeded")
    assert {pod["status"]["phase"] for pod in team.pods()} == {"Succeeded"}


def test_unknown_fields_of_other_clients_are_dropped_by_the_server_and_do_no_harm(team: Team) -> None:
    job = a_job()
    job["spec"]["typo"] = 1
    team.create(job)
    assert "typo" not in (team.job() or {})["spec"]
    team.wait("Succeeded")


def test_conditions_tell_the_story(team: Team) -> None:
    team.apply(a_job())
    status = team.wait("Succeeded")
    told = {kind: condition(status, kind)["status"] for kind in ("Created", "Running", "Complete")}
    assert told == {"Created": "True", "Running": "False", "Complete": "True"}
