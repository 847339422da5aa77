"""Helm is of the plant: where that cannot be built, these tests are left out."""

from collections.abc import Iterator

import pytest

from tests.plant import Plant, start_fake
from tests.plant.needs import demand


@pytest.fixture(autouse=True, scope="session")
def _plant_is_here() -> None:
    demand("fake")


@pytest.fixture(scope="session")
def bare() -> Iterator[Plant]:
    """A cluster that knows nothing of DDPJobs."""
    with start_fake(nodes=1) as plant:
        yield plant
