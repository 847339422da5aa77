"""The plants that these tests run on: one of each size per worker, with the CRD, brought up when first asked for."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from ddpjob_operator.api.contract import API_VERSION

from tests.plant import Plant, start_api, start_fake
from tests.plant.needs import demand
from tests.support.crd import install_crd
from tests.support.jobs import Team
from tests.support.operators import Operator, an_operator


class Resident:
    """An operator that looks after all namespaces of a cluster while tests want it to."""

    def __init__(self, plant: Plant) -> None:
        self._plant = plant
        self._operator: Operator | None = None
        self._stay = ExitStack()

    def come(self) -> None:
        """It is there, also where the last one has died."""
        if self._operator is None or self._operator.program.process.poll() is not None:
            self.leave()
            self._operator = self._stay.enter_context(an_operator(self._plant, "--no-leader-elect", forked=True))

    def leave(self) -> None:
        """It is gone."""
        self._stay.close()
        self._operator = None


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


@pytest.fixture(scope="session")
def resident(fake: Plant) -> Iterator[Resident]:
    """The cluster's operator, which is not there yet."""
    resident = Resident(fake)
    yield resident
    resident.leave()


@pytest.fixture
def team(fake: Plant, resident: Resident) -> Iterator[Team]:
    """A namespace of its own, in the cluster with its operator."""
    resident.come()
    yield Team(fake)
    _clear(fake)


@pytest.fixture
def unattended(fake: Plant, resident: Resident) -> Iterator[Plant]:
    """The cluster without an operator, for tests that bring their own."""
    resident.leave()
    yield fake
    _clear(fake)


def _clear(plant: Plant) -> None:
    """Deletes all jobs, that no later test's operator has to do with them."""
    for job in plant.get(f"/apis/{API_VERSION}/ddpjobs")["items"]:
        metadata = job["metadata"]
        Team(plant, metadata["namespace"]).delete("ddpjobs", metadata["name"])
