"""Runs of a test end with it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.training.machines import on_one_bridge
from tests.training.runs import Runs


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[Runs]:
    runs = Runs(tmp_path)
    yield runs
    for run in runs.started:
        run.kill()


@pytest.fixture
def machines() -> Iterator[list[str]]:
    with on_one_bridge(3) as names:
        yield names
