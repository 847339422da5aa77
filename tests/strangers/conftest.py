from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.local.here import Here
from tests.support.hugging_face import install_transformers


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Here]:
    """Somebody else's directory."""
    place = Here(tmp_path, warm=True)
    yield place
    place.end()


@pytest.fixture(scope="session")
def transformers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where Hugging Face's transformers is installed."""
    directory = tmp_path_factory.mktemp("transformers")
    install_transformers(directory)
    return directory
