"""The cluster that these tests run on: the plant's real nodes or, with PLANT=external, that of KUBECONFIG."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.plant import Plant
from tests.plant.images import OPERATOR, TRAINER
from tests.plant.machines import Machines
from tests.plant.needs import demand, leave_out
from tests.plant.real import start_real
from tests.support.helm import CLUSTER_RELEASE, NAMESPACE, RELEASE
from tests.support.jobs import Team

from .external import of_kubeconfig
from .kind import with_machines
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
                uninstall(plant, CLUSTER_RELEASE)
                # The operator has made it, and the next one is to make its own.
                plant.kubectl("delete", "lease", RELEASE, "--namespace", NAMESPACE)


@pytest.fixture(scope="session")
def host(real: Plant) -> Machines:
    """The cluster, where the test needs the machines that its nodes are."""
    if not isinstance(real, Machines):
        leave_out("left out: it needs the machines of the cluster; run make e2e or, as root, make e2e-kind")
    return real


@pytest.fixture
def team(real: Plant) -> Iterator[Team]:
    """A namespace of its own, whose jobs give way to those of the next test."""
    team = Team(real)
    yield team
    real.api.delete(team.path("ddpjobs"))


@contextmanager
def _cluster() -> Iterator[Plant]:
    if EXTERNAL:
        with of_kubeconfig() as cluster, with_machines(cluster) as plant:
            yield plant
        return
    demand("real")
    with start_real(STRICT, nodes=2, images=(OPERATOR, TRAINER)) as plant:
        yield plant
