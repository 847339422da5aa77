"""The cluster that these tests run on: the plant's real nodes or, with PLANT=external, that of KUBECONFIG."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.plant import Plant
from tests.plant.images import OPERATOR, TRAINER
from tests.plant.needs import demand
from tests.plant.real import RealPlant, start_real
from tests.support.jobs import Team

from .external import External
from .release import STRICT, install, uninstall, wait_for_admission

EXTERNAL = os.environ.get("PLANT") == "external"
LIMIT_SECONDS = 1500


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Training takes its time here."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.timeout(LIMIT_SECONDS))


@pytest.fixture(scope="session")
def real() -> Iterator[Plant]:
    """A cluster of at least two nodes with the operator, installed from its chart."""
    with _cluster() as plant:
        install(plant)
        wait_for_admission(plant)
        try:
            yield plant
        finally:
            if EXTERNAL:
                uninstall(plant)


@pytest.fixture(scope="session")
def host(real: Plant) -> RealPlant:
    """The cluster, where the test needs the machines that its nodes are."""
    if not isinstance(real, RealPlant):
        pytest.skip("left out: it needs the machines of the cluster, and its audit log, which only the plant has")
    return real


@pytest.fixture
def team(real: Plant) -> Team:
    """A namespace of its own."""
    return Team(real)


@contextmanager
def _cluster() -> Iterator[Plant]:
    if EXTERNAL:
        with External.of_kubeconfig() as plant:
            yield plant
        return
    demand("real")
    with start_real(STRICT, nodes=2, images=(OPERATOR, TRAINER)) as plant:
        yield plant
