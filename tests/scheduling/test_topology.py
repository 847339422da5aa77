"""Pods that are placed close to each other by the cluster's own scheduler, without a queue and without PodGroups."""

from collections.abc import Iterator
from itertools import pairwise
from statistics import mean

import pytest

from tests.plant import start_fake
from tests.plant.needs import demand
from tests.support.crd import install_crd
from tests.support.jobs import FOR_LONG, Team, a_job, on_whole_nodes
from tests.support.operators import an_operator

pytestmark = pytest.mark.full("tests/unit/engine/test_pods.py has the affinity, and the rest is the scheduler's")

RACK = "example.com/rack"
NODES, RACKS, SIZE, JOBS = 16, 4, 8, 5


@pytest.fixture(scope="module")
def team() -> Iterator[Team]:
    """A namespace on sixteen nodes in four racks, with an operator."""
    demand("fake")
    with start_fake(nodes=NODES) as plant:
        install_crd(plant)
        for index in range(NODES):
            plant.api.patch(f"/api/v1/nodes/node-{index}", {"metadata": {"labels": {RACK: rack(f"node-{index}")}}})
        with an_operator(plant, "--no-leader-elect", forked=True):
            yield Team(plant)


def rack(node: str) -> str:
    """Neighbours by number are in different racks, as a scheduler that knows of none would not."""
    return f"rack-{int(node.removeprefix('node-')) % RACKS}"


def racks(team: Team, name: str) -> list[str]:
    """The rack of each rank."""
    nodes = {pod["metadata"]["labels"]["ddpjob.dev/rank"]: pod["spec"]["nodeName"] for pod in team.pods(name)}
    return [rack(nodes[rank]) for rank in sorted(nodes, key=int)]


def crossings(team: Team, **spec: object) -> float:
    """How often a ring crosses from rack to rack, on average."""
    counts = []
    for number in range(JOBS):
        name = f"ring-{number}"
        team.apply(on_whole_nodes(a_job(name, nodes=SIZE, annotations=FOR_LONG, **spec)))
        team.until(f"{{.status.ready}}={SIZE}/{SIZE}", name)
        ring = racks(team, name)
        counts.append(sum(one != other for one, other in pairwise([*ring, ring[0]])))
        team.delete("ddpjobs", name, wait=True)
        team.plant.wait("its nodes to be free", lambda: not team.all("pods"))
    return mean(counts)


def test_a_ring_crosses_from_rack_to_rack_less_often_if_the_job_asks_for_it(team: Team) -> None:
    without, preferred = crossings(team), crossings(team, scheduling={"topology": {"preferred": RACK}})
    print(f"crossings of {SIZE}: {without} without, {preferred} with topology.preferred")
    assert preferred < without


def test_all_of_a_gang_are_in_one_rack_if_the_job_requires_it(team: Team) -> None:
    size = NODES // RACKS
    team.apply(on_whole_nodes(a_job(nodes=size, annotations=FOR_LONG, scheduling={"topology": {"required": RACK}})))
    team.until(f"{{.status.ready}}={size}/{size}")
    assert len(set(racks(team, "digits"))) == 1
    team.delete("ddpjobs", "digits", wait=True)


def test_a_label_that_no_node_has_is_named(team: Team) -> None:
    team.apply(a_job("lost", annotations=FOR_LONG, scheduling={"topology": {"required": "example.com/nothing"}}))
    words = "(spec.scheduling.topology: do nodes have the label example.com/nothing?)"
    team.plant.wait("it to be named", lambda: words in team.status("lost").get("message", ""))
    team.delete("ddpjobs", "lost", wait=True)
