"""The plants that these tests run on: one of each size per worker, with the CRD, brought up when first asked for."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.plant import Plant, start_api, start_fake
from tests.plant.needs import demand

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
    plant.kubectl("wait", "--for=condition=Established", "--timeout=60s", "-f", CRD)
