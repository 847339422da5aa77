"""One cluster for all fields, with two namespaces: one in which nothing acts on jobs, and one with an operator."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.plant import Plant, start_fake
from tests.plant.needs import demand
from tests.support.crd import install_crd
from tests.support.operators import an_operator

from .jobs import Jobs
from .server import Server


@pytest.fixture(scope="session")
def plant() -> Iterator[Plant]:
    """A cluster whose simulated nodes report that they run pods, and whose scheduler places gangs."""
    demand("fake")
    with start_fake(pod_groups=True) as plant:
        install_crd(plant)
        yield plant


@pytest.fixture(scope="session")
def server(plant: Plant) -> Iterator[Server]:
    """A namespace without an operator, so that objects stay as they are."""
    with closing(Server(plant, plant.new_namespace())) as server:
        yield server


@pytest.fixture(scope="session")
def jobs(plant: Plant) -> Iterator[Jobs]:
    """A namespace with an operator."""
    namespace = plant.new_namespace()
    with (
        closing(Server(plant, namespace)) as server,
        an_operator(plant, f"--namespace={namespace}", "--no-leader-elect", forked=True) as operator,
    ):
        yield Jobs(server, operator)
