"""A cluster whose own scheduler places whole gangs, with DDPJobs and an operator."""

from collections.abc import Iterator

import pytest

from tests.plant import Plant, start_fake
from tests.plant.kueue import start_kueue
from tests.plant.needs import demand
from tests.plant.volcano import start_volcano
from tests.scheduling.kueue import Kueue
from tests.support.crd import install_crd
from tests.support.jobs import Team
from tests.support.operators import Operator, an_operator


@pytest.fixture(scope="session")
def grouping() -> Iterator[Plant]:
    """Four nodes that only say that they run pods."""
    demand("fake")
    with start_fake(pod_groups=True) as plant:
        install_crd(plant)
        yield plant


@pytest.fixture(scope="session")
def kueue(grouping: Plant) -> Kueue:
    """Kueue, beside that cluster."""
    start_kueue(grouping)
    return Kueue(grouping)


@pytest.fixture(scope="session")
def volcano(grouping: Plant) -> Plant:
    """The same cluster, with Volcano's scheduler too."""
    start_volcano(grouping)
    return grouping


@pytest.fixture(scope="session")
def operator(grouping: Plant) -> Iterator[Operator]:
    """It looks after all namespaces."""
    with an_operator(grouping, "--no-leader-elect", forked=True) as operator:
        yield operator


@pytest.fixture
def team(grouping: Plant, operator: Operator) -> Iterator[Team]:
    """A namespace of its own, and all nodes."""
    assert operator.ready()
    grouping.wait("the nodes to be free", lambda: not grouping.get("/api/v1/pods")["items"])
    team = Team(grouping)
    yield team
    team.delete_all("ddpjobs")
