from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.local.here import Here


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Here]:
    """Somebody else's directory."""
    place = Here(tmp_path)
    yield place
    place.end()
