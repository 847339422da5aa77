"""Pods that are placed close to each other by the cluster's own scheduler, without a queue and without PodGroups."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from statistics import mean
from typing import Any

import pytest
from ddpjob_supervisor.gang.ring import order_of

from tests.plant import start_fake
from tests.plant.needs import demand
from tests.support.crd import install_crd
from tests.support.jobs import FOR_LONG, Team, a_job, on_whole_nodes
from tests.support.operators import an_operator

pytestmark = pytest.mark.full("tests/unit/engine/test_pods.py has the affinity, and the rest is the scheduler's")

RACK = "example.com/rack"
DOMAIN = "ddpjob.dev/topology-domain"
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


def supervised(job: dict[str, Any]) -> dict[str, Any]:
    """The job, with a supervisor in front of its ranks."""
    job["spec"]["template"]["spec"]["containers"][0]["command"] = ["ddpjob-train"]
    return job


def by_number(team: Team, name: str) -> list[dict[str, Any]]:
    """The pods of a job in the order of their numbers."""
    return sorted(team.pods(name), key=lambda pod: int(pod["metadata"]["labels"]["ddpjob.dev/node"]))


def racks(team: Team, name: str) -> list[str]:
    """The rack of each pod."""
    return [rack(pod["spec"]["nodeName"]) for pod in by_number(team, name)]


def told(team: Team, name: str) -> list[str | None]:
    """The rack that each pod was told to be in."""
    return [pod["metadata"].get("annotations", {}).get(DOMAIN) for pod in by_number(team, name)]


def crossings(ring: Sequence[str]) -> int:
    """How often a ring crosses from rack to rack."""
    return sum(one != other for one, other in pairwise([*ring, ring[0]]))


def rings(team: Team, **spec: object) -> tuple[float, float]:
    """How often the rings of some jobs cross, on average: by the numbers of pods, and by what pods were told."""
    plain, ordered = [], []
    for number in range(JOBS):
        name = f"ring-{number}"
        team.apply(supervised(on_whole_nodes(a_job(name, nodes=SIZE, annotations=FOR_LONG, **spec))))
        team.until(f"{{.status.display.ready}}={SIZE}/{SIZE}", name)
        ring = racks(team, name)
        if spec:
            team.plant.wait("all to be told", lambda name=name, ring=ring: told(team, name) == ring)
        order = order_of(dict(enumerate(told(team, name))))
        plain.append(crossings(ring))
        ordered.append(crossings(ring if order is None else [ring[node] for node in order]))
        team.delete("ddpjobs", name, wait=True)
        team.plant.wait("its nodes to be free", lambda: not team.all("pods"))
    return mean(plain), mean(ordered)


def test_a_ring_crosses_less_often_if_the_job_asks_for_it_and_least_if_its_ranks_follow_placement(team: Team) -> None:
    without, same = rings(team)
    preferred, ordered = rings(team, scheduling={"topology": {"preferred": RACK}})
    print(f"crossings of {SIZE}: {without} without, {preferred} with topology.preferred, {ordered} by ranks as well")
    assert without == same, "pods of a job that asks for nothing are told nothing"
    assert ordered <= preferred < without


def test_all_of_a_gang_are_in_one_rack_if_the_job_requires_it(team: Team) -> None:
    size = NODES // RACKS
    team.apply(on_whole_nodes(a_job(nodes=size, annotations=FOR_LONG, scheduling={"topology": {"required": RACK}})))
    team.until(f"{{.status.display.ready}}={size}/{size}")
    assert len(set(racks(team, "digits"))) == 1
    assert told(team, "digits") == [None] * size, "no supervisor could make use of it"
    team.delete("ddpjobs", "digits", wait=True)


def test_a_label_that_no_node_has_is_named(team: Team) -> None:
    team.apply(a_job("lost", annotations=FOR_LONG, scheduling={"topology": {"required": "example.com/nothing"}}))
    words = (
        "(check that Kubernetes nodes have the label example.com/nothing, which spec.scheduling.topology requires)"
    )
    team.plant.wait("it to be named", lambda: words in team.status("lost").get("message", ""))
    team.delete("ddpjobs", "lost", wait=True)
