"""Deleting a job in every way there is: what is to go goes, and nothing waits for an operator."""

from typing import Any

import pytest
from ddpjob_operator.api.contract import Label

from tests.plant import Plant
from tests.support.jobs import FOR_LONG, Team, a_job

KINDS = "ddpjobs,pods,services,networkpolicies,secrets"


def metadata(team: Team) -> list[dict[str, Any]]:
    """Of the job and all that is its own."""
    job = team.job()
    assert job is not None
    return [job["metadata"], *(pod["metadata"] for pod in team.pods())]


@pytest.mark.parametrize("way", ["Background", "Foreground"])
def test_nothing_is_left_of_a_deleted_job(fake: Plant, team: Team, way: str) -> None:
    team.apply(a_job(annotations=FOR_LONG, network={"policy": "Enabled"}))
    team.wait("Running")
    assert not any("finalizers" in one for one in metadata(team))
    team.delete("ddpjobs", "digits", cascade=way, wait=True)
    fake.wait("everything to go", team.empty)


@pytest.mark.parametrize("way", ["Background", "Foreground"])
def test_nothing_is_left_where_no_operator_runs(unattended: Plant, way: str) -> None:
    team = Team(unattended)
    with team.operator():
        team.apply(a_job(annotations=FOR_LONG, network={"policy": "Enabled"}))
        team.wait("Running")
    team.delete("ddpjobs", "digits", cascade=way, wait=True)
    unattended.wait("everything to go", team.empty)


def test_a_job_that_is_on_its_way_out_gets_no_new_pods(fake: Plant, team: Team) -> None:
    """A foreground deletion takes its time: the job is there until its last pod has ended."""
    team.apply(a_job(annotations=FOR_LONG | {"plant.ddpjob.dev/ignores-sigterm": "true"}))
    team.wait("Running")
    before = {pod["metadata"]["uid"] for pod in team.pods()}
    team.delete("ddpjobs", "digits", cascade="Foreground")
    fake.wait("the pods to be told", lambda: all("deletionTimestamp" in pod["metadata"] for pod in team.pods()))
    team.delete("pods", team.pod(0), grace=0)
    team.apply(a_job("another", nodes=1))
    team.wait("Succeeded", "another")
    assert {pod["metadata"]["uid"] for pod in team.pods()} < before
    assert team.status()["attempt"] == 1
    team.delete("ddpjobs", "another", wait=True)
    fake.wait("everything to go", team.empty)


def test_what_is_orphaned_is_left_alone_and_is_in_no_new_job_s_way(fake: Plant, team: Team) -> None:
    team.apply(a_job(annotations=FOR_LONG))
    team.wait("Running")
    team.delete("ddpjobs", "digits", cascade="Orphan", wait=True)
    fake.wait("the pods to be nobody's", lambda: not any("ownerReferences" in one["metadata"] for one in team.pods()))
    orphans = {pod["metadata"]["uid"] for pod in team.pods()}
    team.apply(a_job())
    assert team.wait("Succeeded")["attempt"] == 1
    left = [pod for pod in team.pods() if pod["metadata"]["uid"] in orphans]
    assert [pod["status"]["phase"] for pod in left] == ["Running", "Running"]


def goes(team: Team) -> None:
    """The namespace is deleted, and soon gone."""
    path = f"/api/v1/namespaces/{team.namespace}"
    team.plant.api.delete(path)
    team.plant.wait("the namespace to go", lambda: team.plant.get(path) is None)


IDLE = pytest.mark.full("nothing more is to go than of a job whose pods are there, which is tried beside it")


@pytest.mark.parametrize(
    "state", ["Running", pytest.param("Suspended", marks=IDLE), pytest.param("Succeeded", marks=IDLE), "Starting"]
)
def test_a_namespace_goes_whatever_its_jobs_do(unattended: Plant, state: str) -> None:
    team = Team(unattended)
    job = a_job(annotations={} if state == "Succeeded" else FOR_LONG, suspend=state == "Suspended")
    if state == "Starting":
        job["spec"]["template"]["spec"]["nodeSelector"] = {"example.com/never": "true"}
    with team.operator():
        team.apply(job)
        team.wait(state)
        goes(team)


def test_a_namespace_goes_also_where_no_operator_runs(unattended: Plant) -> None:
    team = Team(unattended)
    with team.operator():
        team.apply(a_job(annotations=FOR_LONG))
        team.wait("Running")
    goes(team)


def test_ours_can_be_found_by_their_labels(team: Team) -> None:
    team.apply(a_job(network={"policy": "Enabled"}))
    team.wait("Succeeded")
    found = team.kubectl("get", KINDS, "-l", f"{Label.JOB_NAME}=digits", "-o", "name").split()
    assert sorted(name.split("/")[0] for name in found) == [
        "networkpolicy.networking.k8s.io",
        "pod",
        "pod",
        "secret",
        "service",
    ]
