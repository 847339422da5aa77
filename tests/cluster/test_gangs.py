"""Whole or not at all: jobs that each hold what the other lacks, and what an operator leaves half done."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from ddpjob_operator.api.contract import Label

from tests.plant import Plant
from tests.plant.fake import add_node, remove_node
from tests.support.jobs import FOR_LONG, Team, a_job, condition, on_whole_nodes

TAINT = "example.com/reserved"
HALF = ("node-2", "node-3")
OTHER_HALF = ("node-0", "node-1")


@pytest.fixture
def alone(unattended: Plant) -> Iterator[Team]:
    """With the nodes for itself alone, at first half of them, and no operator yet."""
    team = Team(unattended)
    cordon(unattended, *HALF)
    yield team
    uncordon(unattended, *HALF, *OTHER_HALF)
    team.delete_all("ddpjobs")
    unattended.wait("the nodes to be free", team.empty)


@pytest.fixture
def team(alone: Team) -> Iterator[Team]:
    """With an operator."""
    with alone.operator():
        yield alone


@pytest.fixture
def reserved(fake: Plant) -> Iterator[dict[str, str]]:
    """The toleration of those for whom the half is kept that others cannot use, until the taint is gone."""
    taint(fake, *HALF, taints=[{"key": TAINT, "value": "true", "effect": "NoSchedule"}])
    uncordon(fake, *HALF)
    yield {"key": TAINT, "operator": "Exists"}
    taint(fake, *HALF, taints=[])


def cordon(plant: Plant, *nodes: str) -> None:
    """No more pods on these."""
    _change(plant, nodes, unschedulable=True)


def uncordon(plant: Plant, *nodes: str) -> None:
    """Pods may come again."""
    _change(plant, nodes, unschedulable=None)


def taint(plant: Plant, *nodes: str, taints: list[dict[str, str]]) -> None:
    """These taints, and no others, are on the nodes."""
    _change(plant, nodes, taints=taints)


def _change(plant: Plant, nodes: tuple[str, ...], **spec: Any) -> None:
    for node in nodes:
        plant.api.patch(f"/api/v1/nodes/{node}", {"spec": spec})


def placed(team: Team, name: str) -> set[str]:
    """The nodes that a job holds."""
    return {pod["spec"]["nodeName"] for pod in team.pods(name) if "nodeName" in pod["spec"]}


def incarnation(pod: dict[str, Any]) -> str:
    return str(pod["metadata"]["labels"][Label.INCARNATION])


def a_large_job(name: str, **spec: Any) -> dict[str, Any]:
    """One that takes every node there is."""
    return on_whole_nodes(a_job(name, nodes=4, annotations=FOR_LONG, **spec))


@pytest.fixture
def fifth(unattended: Plant) -> Iterator[str]:
    """One node more, for those for whom the half is kept."""
    add_node(unattended, 4)
    node = "node-4"
    unattended.wait("the node", lambda: unattended.get(f"/api/v1/nodes/{node}")["status"].get("allocatable"))
    yield node
    remove_node(unattended, node)


def first_to_run(team: Team, names: set[str]) -> str:
    """The first of these jobs that runs whole; it is done then, and the nodes are free."""
    name: str = team.plant.wait(
        f"one of {names} to run",
        lambda: next((name for name in names if team.status(name)["state"] == "Running"), ""),
        seconds=180,
    )
    for pod in team.pods(name):
        team.tell(pod["metadata"]["name"], runs_for="0s")
    team.wait("Succeeded", name)
    return name


def test_of_two_jobs_that_each_lack_what_the_other_holds_one_soon_gives_way_and_both_run(
    fake: Plant, fifth: str, team: Team, reserved: dict[str, str]
) -> None:
    taint(fake, fifth, taints=[{"key": TAINT, "value": "true", "effect": "NoSchedule"}])
    team.apply(a_large_job("one"))
    fake.wait("two nodes to be taken", lambda: placed(team, "one") == set(OTHER_HALF))
    other = a_large_job("other")
    other["spec"]["template"]["spec"]["tolerations"] = [reserved]
    team.apply(other)
    fake.wait("the other three to be taken", lambda: placed(team, "other") == {*HALF, fifth})
    taint(fake, *HALF, fifth, taints=[])
    jobs = {"one", "other"}
    first = first_to_run(team, jobs)
    (second,) = jobs - {first}
    first_to_run(team, {second})
    statuses = [team.status(name) for name in (first, second)]
    assert [status["attempt"] for status in statuses] == [1, 2], "long before scheduleTimeoutSeconds"
    assert all(status.get("restarts", 0) == status.get("disruptions", 0) == 0 for status in statuses)
    assert team.events(second)["GaveWay"] == 1


def test_an_incomplete_gang_gives_back_and_says_so(fake: Plant, team: Team) -> None:
    team.apply(
        a_large_job("digits", scheduleTimeoutSeconds=6, restart={"backoffSeconds": 1000, "maxBackoffSeconds": 1000})
    )
    team.until("{.status.attempt}=2")
    fake.wait("all to be given back", lambda: not team.pods())
    status = team.status()
    assert status["state"] == "Pending"
    assert status["message"].startswith(
        "2 of 4 pods could be scheduled within 6 s (scheduleTimeoutSeconds): stopping all pods"
    )
    assert condition(status, "Created")["reason"] == "GangIncomplete"
    assert not status.get("restarts")
    assert not status.get("incidents")
    fake.wait("the event", lambda: team.events()["GangIncomplete"] == 1)


def test_a_job_that_asks_for_what_its_cluster_does_not_serve_runs_and_is_told(team: Team) -> None:
    uncordon(team.plant, *HALF)
    team.apply(a_large_job("digits", scheduling={"disruptionMode": {"all": {}}}))
    status = team.wait("Running")
    assert "podGroup" not in status
    assert "spec.scheduling has no effect on this attempt" in condition(status, "Created")["message"]
    assert all("schedulingGroup" not in pod["spec"] for pod in team.pods())


def test_a_gang_of_which_no_pod_has_a_node_holds_nothing_and_waits(fake: Plant, team: Team) -> None:
    cordon(fake, *OTHER_HALF)
    team.apply(a_large_job("digits", scheduleTimeoutSeconds=10))
    fake.wait("the scheduler's word", lambda: "Unschedulable" in team.status().get("message", ""))
    over = datetime.now(UTC) + timedelta(seconds=12)
    fake.wait("more time to pass than it may hold nodes", lambda: datetime.now(UTC) > over)
    uncordon(fake, *HALF, *OTHER_HALF)
    assert team.wait("Running")["attempt"] == 1


def test_the_deadline_for_the_start_ends_a_gang_that_never_comes_up(fake: Plant, team: Team) -> None:
    team.apply(a_large_job("digits", scheduleTimeoutSeconds=1, startDeadlineSeconds=8))
    status = team.wait("Failed", seconds=120)
    assert condition(status, "Failed")["reason"] == "StartDeadlineExceeded"
    assert status["attempt"] > 1
    fake.wait("all to be given back", lambda: all(pod["status"]["phase"] == "Failed" for pod in team.pods()))


KILLED = pytest.mark.full("more moments of the same kill: tests/faults has one at each write of such a life")


@pytest.mark.parametrize(
    "left",
    [
        pytest.param(4, id="decided", marks=KILLED),
        pytest.param(3, id="half given back"),
        pytest.param(0, id="given back", marks=KILLED),
    ],
)
def test_an_operator_killed_while_a_gang_gives_back_leaves_nothing_behind(alone: Team, left: int) -> None:
    team, plant = alone, alone.plant
    with team.operator() as operator:
        team.apply(a_large_job("digits", scheduleTimeoutSeconds=2, restart={"backoffSeconds": 3}))
        team.until("{.status.attempt}=2")
        plant.wait("the moment", lambda: len(team.pods()) <= left)
        operator.kill()
    uncordon(plant, *HALF)
    team.change("digits", scheduleTimeoutSeconds=120)  # On a busy machine pods take long to get their nodes.
    with team.operator():
        assert team.wait("Running", seconds=120)["attempt"] == 2
        plant.wait("the former pods to go", lambda: {incarnation(pod) for pod in team.pods()} == {"2"})


def test_an_operator_killed_while_finished_jobs_go_leaves_none_of_them(unattended: Plant) -> None:
    team, jobs = Team(unattended), 20
    with team.operator() as operator:
        team.apply(*(a_job(f"digits-{number}", nodes=1) for number in range(jobs)))
        team.kubectl("wait", "--for=condition=Complete", "ddpjobs", "--all", "--timeout=120s")
        operator.kill()
    for number in range(jobs):
        team.change(f"digits-{number}", ttlSecondsAfterFinished=0)
    with team.operator(until_ready=False) as operator:
        unattended.wait("the first to go", lambda: len(team.all("ddpjobs")) < jobs)
        operator.kill()
    print(f"killed when {jobs - len(team.all('ddpjobs'))} of {jobs} were gone")
    with team.operator():
        unattended.wait("all that was theirs to go", team.empty)
