"""The plants that these tests run on: one of each size per worker, with the CRD, brought up when first asked for."""

from collections.abc import Iterator

import pytest

from tests.plant import Plant, start_api, start_fake
from tests.plant.needs import demand
from tests.support.crd import install_crd
from tests.support.jobs import Team
from tests.support.operators import an_operator


@pytest.fixture(scope="session")
def api() -> Iterator[Plant]:
    """An API server that knows DDPJobs. Nothing acts on them; pods can be made, and stay as they are."""
    demand("api")
    with start_api() as plant:
        install_crd(plant)
        yield plant


@pytest.fixture(scope="session")
def fake() -> Iterator[Plant]:
    """A cluster that knows DDPJobs, with four nodes that only say that they run pods."""
    demand("fake")
    with start_fake() as plant:
        install_crd(plant)
        yield plant


@pytest.fixture
def team(fake: Plant) -> Iterator[Team]:
    """A namespace of its own with an operator that looks after it alone."""
    team = Team(fake)
    with an_operator(fake, f"--namespace={team.namespace}", "--no-leader-elect"):
        yield team
