"""A pytest plugin: tells coverage which test runs, and leaves out the tests that do not reach a mutant.

A test is a function with all its parameters, named `tests/unit/api/test_crd.py::test_it`.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import coverage
import pytest

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


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """What runs now runs for this test."""
    if measuring := coverage.Coverage.current():
        measuring.switch_context(name_of(item))
    result = yield
    if measuring:
        measuring.switch_context("")
    return result
