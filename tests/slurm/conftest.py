"""One Slurm for all tests of a session."""

from collections.abc import Iterator

import pytest

from tests.slurm.cluster import Cluster, demand


@pytest.fixture(scope="session")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    demand()
    with Cluster(tmp_path_factory.mktemp("slurm")) as cluster:
        yield cluster
