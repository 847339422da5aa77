"""Kubernetes nodes that a job avoids: schedulers place its pods elsewhere, and it does not wait for that for long."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.plant import Plant, start_fake
from tests.plant.needs import demand
from tests.support.crd import install_crd
from tests.support.jobs import FOR_LONG, Team, a_job, on_whole_nodes

from .conftest import SHORTLY
from .test_kueue import a_queued_job

FULL = pytest.mark.full("a gang that goes back to a broken node as a whole stands for it; test_pods.py has the rules")
MOST = 8
BROKEN = json.dumps({"version": 2, "cause": "DeviceFailed", "message": "an ECC error that cannot be corrected"})
AT_ONCE = {"backoffSeconds": 0}
OneByOne = Callable[[int], Team]


def leave(plant: Plant, number: int, of: int) -> None:
    """Lets pods be placed on the first nodes only."""
    for index in range(of):
        plant.api.patch(f"/api/v1/nodes/node-{index}", {"spec": {"unschedulable": index >= number or None}})


@pytest.fixture(scope="module")
def one_by_one() -> Iterator[OneByOne]:
    """A namespace on so many nodes with eight GPUs each, where pods are placed without PodGroups."""
    demand("fake")
    with start_fake(nodes=MOST) as plant:
        install_crd(plant)

        def on(number: int) -> Team:
            leave(plant, number, of=MOST)
            return Team(plant)

        yield on


@contextmanager
def broken(team: Team, job: dict[str, Any]) -> Iterator[str]:
    """A device of rank 0's node fails, and the job starts again; at the end all of it is gone."""
    team.apply(job)
    team.wait("Running")
    where = {pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in team.pods()}
    failed = team.fails(0, message=BROKEN)
    team.until("{.status.attempt}=2")
    yield where[failed]
    team.delete("ddpjobs", "digits", wait=True)
    team.plant.wait("its nodes to be free", lambda: not team.all("pods"))


def places(team: Team) -> list[str]:
    """The nodes of the second attempt's pods, empty for each that has none."""
    return sorted(pod["spec"].get("nodeName", "") for pod in team.all("pods", "ddpjob.dev/incarnation=2"))


def goes_back(team: Team, node: str, nodes: int) -> None:
    """The job waits for another node for a while, goes back to the broken one, and says so."""
    words = f"(ruled out as broken: {node} (DeviceFailed))"
    team.plant.wait("it to say why it waits", lambda: words in team.status()["message"])
    team.until("{.status.attempt}=3")
    team.until(f"{{.status.display.ready}}={nodes}/{nodes}")
    status = team.status()
    assert f"could only be placed on a Kubernetes node that is avoided: {node} (DeviceFailed)" in status["message"]
    assert [(one["nodeName"], one.get("required")) for one in status["avoidedNodeNames"]] == [(node, None)]
    assert (team.events()["AvoidanceLifted"], status.get("restarts", 0), status["disruptions"]) == (1, 0, 1)


@FULL
@pytest.mark.parametrize(("number", "pods"), [(2, 2), (2, 8), (3, 3), (3, 6), (8, 8), (8, 16)])
def test_pods_prefer_full_nodes_to_an_empty_one_that_is_avoided(one_by_one: OneByOne, number: int, pods: int) -> None:
    """There are more pods than other nodes, so that the spread alone would place the last ones on this one."""
    team, job = one_by_one(number), a_job(nodes=pods, annotations=FOR_LONG, restart=AT_ONCE)
    limits = {"nvidia.com/gpu": 1, "cpu": 7, "memory": "60Gi"}
    job["spec"]["template"]["spec"]["containers"][0]["resources"] = {"limits": limits}
    with team.operator("--avoid-broken-nodes-seconds=0"), broken(team, job) as node:
        team.until(f"{{.status.display.ready}}={pods}/{pods}")
        assert len({*places(team)} - {node}) == number - 1, "the others are all used"
        assert node not in places(team)


@FULL
def test_a_broken_node_is_used_again_if_no_other_is_found(one_by_one: OneByOne) -> None:
    team, job = one_by_one(2), on_whole_nodes(a_job(annotations=FOR_LONG, restart=AT_ONCE))
    with team.operator(SHORTLY), broken(team, job) as node:
        goes_back(team, node, nodes=2)


@FULL
def test_a_node_that_becomes_free_in_time_is_used_instead(one_by_one: OneByOne) -> None:
    team, job = one_by_one(2), on_whole_nodes(a_job(annotations=FOR_LONG, restart=AT_ONCE))
    with team.operator(), broken(team, job) as node:
        team.plant.wait("it to lack a node", lambda: "ruled out" in team.status()["message"])
        one_by_one(3)
        team.until("{.status.display.ready}=2/2")
        assert node not in places(team)
        assert team.status()["attempt"] == 2


def test_a_gang_that_is_placed_as_a_whole_goes_back_as_a_whole(team: Team) -> None:
    job = on_whole_nodes(a_job(nodes=4, annotations=FOR_LONG, restart=AT_ONCE))
    with broken(team, job) as node:
        assert not any(places(team)), "none is placed without the others"
        goes_back(team, node, nodes=4)


@FULL
def test_a_job_keeps_the_quota_of_its_queue_meanwhile(queue_team: Team) -> None:
    leave(queue_team.plant, 1, of=4)
    try:
        with broken(queue_team, a_queued_job(nodes=2, restart=AT_ONCE)) as node:
            goes_back(queue_team, node, nodes=2)
            assert queue_team.events()["Queued"] == 1, "it has been admitted once"
    finally:
        leave(queue_team.plant, 4, of=4)
