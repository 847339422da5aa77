"""A pytest plugin: tells coverage which test runs, and leaves out the tests that do not reach a mutant.

A test is a function with all its parameters, named `tests/unit/api/test_crd.py::test_it`.
"""

import os
from pathlib import Path

import coverage
import pytest

RUNNING = pytest.StashKey[str]()

ONLY = "ONLY_THESE_TESTS"
"""The variable that names a file of tests, one a line: no others run."""


def name_of(item: pytest.Item) -> str:
    """The test that an item belongs to."""
    return item.nodeid.partition("[")[0]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keeps the tests that are asked for."""
    if only := os.environ.get(ONLY):
        wanted = set(Path(only).read_text(encoding="utf-8").splitlines())
        items[:] = [item for item in items if name_of(item) in wanted]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> None:
    """What runs now runs for this test. Told once for all its parameters: each time coverage writes all it has."""
    measuring, name = coverage.Coverage.current(), name_of(item)
    if measuring and item.session.stash.get(RUNNING, "") != name:
        item.session.stash[RUNNING] = name
        measuring.switch_context(name)
