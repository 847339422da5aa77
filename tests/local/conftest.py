from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.local.here import Here


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Here]:
    place = Here(tmp_path, warm=True)
    yield place
    place.end()
