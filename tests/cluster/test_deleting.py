"""Deleting a job in every way there is: what is to go goes, and nothing waits for an operator."""

from typing import Any

import pytest
from ddpjob_operator.api.contract import Label

from tests.plant import Plant
from tests.support.jobs import FOR_LONG, Team, a_job, condition
from tests.support.operators import an_operator

KINDS = "ddpjobs,pods,services,networkpolicies"


def metadata(team: Team) -> list[dict[str, Any]]:
    """Of the job and all that is its own."""
    job = team.job()
    assert job is not None
    return [job["metadata"], *(pod["metadata"] for pod in team.pods())]


@pytest.mark.parametrize("way", ["background", "foreground"])
def test_nothing_is_left_of_a_deleted_job(fake: Plant, team: Team, way: str) -> None:
    team.apply(a_job(annotations=FOR_LONG, networkPolicy="Enabled"))
    team.wait("Running")
    assert not any("finalizers" in one for one in metadata(team))
    team.kubectl("delete", "ddpjob", "digits", f"--cascade={way}", "--timeout=60s")
    fake.wait("everything to go", team.empty)


@pytest.mark.parametrize("way", ["background", "foreground"])
def test_nothing_is_left_where_no_operator_runs(fake: Plant, way: str) -> None:
    team = Team(fake)
    with an_operator(fake, f"--namespace={team.namespace}", "--no-leader-elect"):
        team.apply(a_job(annotations=FOR_LONG, networkPolicy="Enabled"))
        team.wait("Running")
    team.kubectl("delete", "ddpjob", "digits", f"--cascade={way}", "--timeout=60s")
    fake.wait("everything to go", team.empty)


def test_a_job_that_is_on_its_way_out_gets_no_new_pods(fake: Plant, team: Team) -> None:
    """A foreground deletion takes its time: the job is there until its last pod has ended."""
    team.apply(a_job(annotations=FOR_LONG | {"plant.ddpjob.dev/ignores-sigterm": "true"}))
    team.wait("Running")
    before = {pod["metadata"]["uid"] for pod in team.pods()}
    team.kubectl("delete", "ddpjob", "digits", "--cascade=foreground", "--wait=false")
    fake.wait("the pods to be told", lambda: all("deletionTimestamp" in pod["metadata"] for pod in team.pods()))
    team.kubectl("delete", "pod", team.pod(0), "--grace-period=0", "--force")
    team.apply(a_job("another", nodes=1))
    team.wait("Succeeded", "another")
    assert {pod["metadata"]["uid"] for pod in team.pods()} < before
    assert team.status()["attempt"] == 1
    team.kubectl("delete", "ddpjob", "another", "--timeout=60s")
    fake.wait("everything to go", team.empty)


def test_what_is_orphaned_is_left_alone_and_is_in_a_new_job_s_way(fake: Plant, team: Team) -> None:
    team.apply(a_job(annotations=FOR_LONG))
    team.wait("Running")
    team.kubectl("delete", "ddpjob", "digits", "--cascade=orphan", "--timeout=60s")
    fake.wait("the pods to be nobody's", lambda: not any("ownerReferences" in one["metadata"] for one in team.pods()))
    orphans = {pod["metadata"]["uid"] for pod in team.pods()}
    team.apply(a_job())
    team.kubectl("wait", "--for=condition=Blocked", "ddpjob/digits", "--timeout=60s")
    said = condition(team.status(), "Blocked")
    assert said["message"].startswith("Service digits exists and belongs to somebody else")
    assert {pod["metadata"]["uid"] for pod in team.pods()} == orphans
    assert {pod["status"]["phase"] for pod in team.pods()} == {"Running"}
    team.kubectl("delete", "service", "digits")
    assert team.wait("Succeeded")["attempt"] == 1
    assert orphans <= {pod["metadata"]["uid"] for pod in team.pods()}


@pytest.mark.parametrize("state", ["Running", "Suspended", "Succeeded", "Starting"])
def test_a_namespace_goes_whatever_its_jobs_do(fake: Plant, state: str) -> None:
    team = Team(fake)
    job = a_job(annotations={} if state == "Succeeded" else FOR_LONG, suspend=state == "Suspended")
    if state == "Starting":
        job["spec"]["template"]["spec"]["nodeSelector"] = {"example.com/never": "true"}
    with an_operator(fake, f"--namespace={team.namespace}", "--no-leader-elect"):
        team.apply(job)
        team.wait(state)
        fake.kubectl("delete", "namespace", team.namespace, "--timeout=90s")
    assert fake.get(f"/api/v1/namespaces/{team.namespace}") is None


def test_a_namespace_goes_also_where_no_operator_runs(fake: Plant) -> None:
    team = Team(fake)
    with an_operator(fake, f"--namespace={team.namespace}", "--no-leader-elect"):
        team.apply(a_job(annotations=FOR_LONG))
        team.wait("Running")
    fake.kubectl("delete", "namespace", team.namespace, "--timeout=90s")
    assert fake.get(f"/api/v1/namespaces/{team.namespace}") is None


def test_ours_can_be_found_by_their_labels(team: Team) -> None:
    team.apply(a_job(networkPolicy="Enabled"))
    team.wait("Succeeded")
    found = team.kubectl("get", KINDS, "-l", f"{Label.JOB_NAME}=digits", "-o", "name").split()
    assert sorted(name.split("/")[0] for name in found) == [
        "networkpolicy.networking.k8s.io",
        "pod",
        "pod",
        "service",
    ]
