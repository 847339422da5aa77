"""The plants that these tests run on: one of each size per worker, with the CRD, brought up when first asked for."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from ddpjob_operator.api.contract import API_VERSION

from tests.plant import Plant, start_api, start_fake
from tests.plant.needs import demand

from .jobs import Team
from .operators import an_operator

CRD = Path(__file__).parents[2] / "deploy" / "crd.yaml"


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


def install_crd(plant: Plant) -> None:
    """As a user does it."""
    plant.kubectl("apply", "-f", CRD)
    # Not `kubectl wait`: it fails where the CRD is so new that it has no conditions yet.
    plant.wait("the CRD to be served", lambda: plant.get(f"/apis/{API_VERSION}"))


@pytest.fixture
def team(fake: Plant) -> Iterator[Team]:
    """A namespace of its own with an operator that looks after it alone."""
    team = Team(fake)
    with an_operator(fake, f"--namespace={team.namespace}", "--no-leader-elect"):
        yield team
