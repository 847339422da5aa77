"""Clusters with DDPJobs and an operator: one whose own scheduler places whole gangs, and one with Kueue."""

from collections.abc import Iterator

import pytest

from tests.plant import Plant, start_fake
from tests.plant.kueue import start_kueue
from tests.plant.needs import demand
from tests.support.crd import install_crd
from tests.support.jobs import Team
from tests.support.kueue import CLUSTER_QUEUE, QUEUE, create_cluster_queue, of_kueue, workloads
from tests.support.operators import Operator, an_operator

SHORTLY = "--avoid-broken-nodes-seconds=5"


@pytest.fixture(scope="session")
def grouping() -> Iterator[Plant]:
    """Four nodes that only say that they run pods."""
    demand("fake")
    with start_fake(pod_groups=True) as plant:
        install_crd(plant)
        yield plant


@pytest.fixture(scope="session")
def operator(grouping: Plant) -> Iterator[Operator]:
    """It looks after all namespaces."""
    with an_operator(grouping, "--no-leader-elect", SHORTLY, forked=True) as operator:
        yield operator


@pytest.fixture
def team(grouping: Plant, operator: Operator) -> Iterator[Team]:
    """A namespace of its own, and all nodes."""
    assert operator.ready()
    grouping.wait("the nodes to be free", lambda: not grouping.get("/api/v1/pods")["items"])
    team = Team(grouping)
    yield team
    team.delete_all("ddpjobs")


@pytest.fixture(scope="session")
def queueing() -> Iterator[Plant]:
    """Four nodes that only say that they run pods, and Kueue."""
    demand("fake")
    with start_fake() as plant:
        install_crd(plant)
        start_kueue(plant)
        create_cluster_queue(plant)
        yield plant


@pytest.fixture(scope="session")
def queue_operator(queueing: Plant) -> Iterator[Operator]:
    """It looks after all namespaces."""
    with an_operator(queueing, "--no-leader-elect", SHORTLY, forked=True) as operator:
        yield operator


@pytest.fixture
def queue_team(queueing: Plant, queue_operator: Operator) -> Iterator[Team]:
    """A namespace with a queue, and all of the quota."""
    assert queue_operator.ready()
    team = Team(queueing)
    team.apply(of_kueue("LocalQueue", QUEUE, {"clusterQueue": CLUSTER_QUEUE}))
    yield team
    team.delete_all("ddpjobs")
    team.plant.wait("the quota to be free", lambda: not workloads(team))
