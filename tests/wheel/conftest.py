import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.local.here import Here
from tests.wheel import projects


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the project builds."""
    return projects.build(tmp_path_factory.mktemp("clone") / "ddpjob")


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Here]:
    """A directory of somebody's, with an environment that has nothing yet."""
    directory = tmp_path / "project"
    directory.mkdir()
    place = Here(directory, projects.environment(tmp_path / "environment"))
    yield place
    place.end()
    shutil.rmtree(place.bin.parent)  # It may have a torch of 5 GB, and pytest would keep it.
