"""Volcano itself: how its scheduler places gangs that are made by hand."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.plant import Plant
from tests.plant.volcano import API, SCHEDULER
from tests.support.jobs import FOR_LONG, WHOLE_NODES, Team

pytestmark = [
    pytest.mark.full("shows Volcano, not the operator"),
    # The first test builds it where it is not there.
    pytest.mark.timeout(1800),
]


@pytest.fixture
def team(volcano: Plant) -> Iterator[Team]:
    """A namespace of its own, and all four nodes."""
    volcano.wait("the nodes to be free", lambda: not volcano.get("/api/v1/pods")["items"])
    team = Team(volcano)
    yield team
    team.delete_all("pods")


def make_gang(team: Team, name: str, nodes: int, **spec: Any) -> None:
    """A PodGroup, and pods that take a whole node each."""
    group = {"apiVersion": API, "kind": "PodGroup", "metadata": {"name": name}}
    team.create(group | {"spec": {"minMember": nodes, **spec}})
    for rank in range(nodes):
        make_pod(team, name, rank)


def make_pod(team: Team, gang: str, rank: int) -> None:
    annotations = {"scheduling.k8s.io/group-name": gang} | FOR_LONG
    metadata = {"name": f"{gang}-{rank}", "labels": {"gang": gang}, "annotations": annotations}
    container = {"name": "trainer", "image": "nothing", "resources": WHOLE_NODES}
    spec = {"schedulerName": SCHEDULER, "restartPolicy": "Never", "containers": [container]}
    team.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})


def phase(team: Team, gang: str) -> str:
    """What Volcano says of a gang; nothing where it has not looked at it."""
    group = team.plant.get(f"/apis/{API}/namespaces/{team.namespace}/podgroups/{gang}")
    return str(group.get("status", {}).get("phase", ""))


def placed(team: Team, gang: str) -> int:
    """How many nodes a gang holds."""
    return sum("nodeName" in pod["spec"] for pod in team.all("pods", f"gang={gang}"))


def why_pods_wait(team: Team, gang: str) -> set[str]:
    """The reasons of the conditions PodScheduled."""
    conditions = [one for pod in team.all("pods", f"gang={gang}") for one in pod["status"].get("conditions", ())]
    return {one["reason"] for one in conditions if (one["type"], one["status"]) == ("PodScheduled", "False")}


def test_of_two_gangs_that_have_no_room_together_one_runs_and_the_other_holds_nothing_until_then(team: Team) -> None:
    make_gang(team, "one", nodes=3)
    team.plant.wait("the first to run", lambda: phase(team, "one") == "Running")
    assert placed(team, "one") == 3
    make_gang(team, "other", nodes=2)
    # A node is free: one of its pods could have it.
    team.plant.wait("it to say why", lambda: why_pods_wait(team, "other") == {"Schedulable", "Unschedulable"})
    assert (phase(team, "other"), placed(team, "other")) == ("Inqueue", 0)
    team.tell("one-0", "one-1", "one-2", runs_for="0s")
    team.plant.wait("the other to run", lambda: phase(team, "other") == "Running")
    assert (phase(team, "one"), placed(team, "other")) == ("Completed", 2)


def test_a_gang_waits_until_all_of_its_pods_are_there(team: Team) -> None:
    make_gang(team, "one", nodes=2, minMember=3)
    team.plant.wait("it to say why", lambda: why_pods_wait(team, "one") == {"Unschedulable"})
    assert (phase(team, "one"), placed(team, "one")) == ("Inqueue", 0)
    make_pod(team, "one", 2)
    team.plant.wait("it to run", lambda: phase(team, "one") == "Running")


def test_a_gang_of_a_queue_that_does_not_exist_waits_and_nobody_says_why(team: Team) -> None:
    make_gang(team, "lost", nodes=1, queue="nowhere")
    make_gang(team, "found", nodes=1)
    team.plant.wait("another to run", lambda: phase(team, "found") == "Running")
    assert (phase(team, "lost"), placed(team, "lost"), why_pods_wait(team, "lost")) == ("", 0, set())
