"""The plants of these tests: an API server alone, and a cluster with one operator for the jobs of all fields."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.plant import start_api, start_fake
from tests.plant.needs import demand
from tests.support.crd import install_crd
from tests.support.operators import an_operator

from .jobs import Jobs
from .server import Server


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """An API server on which nothing acts."""
    demand("api")
    with start_api() as plant:
        install_crd(plant)
        with closing(Server(plant, plant.new_namespace())) as server:
            yield server


@pytest.fixture(scope="session")
def jobs() -> Iterator[Jobs]:
    """A namespace in a cluster whose nodes say that they run pods, with an operator."""
    demand("fake")
    with start_fake() as plant:
        install_crd(plant)
        namespace = plant.new_namespace()
        with (
            closing(Server(plant, namespace)) as server,
            an_operator(plant, f"--namespace={namespace}", "--no-leader-elect") as operator,
        ):
            yield Jobs(server, operator)
