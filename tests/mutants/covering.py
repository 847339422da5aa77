"""A pytest plugin: tells coverage which test runs, how long each took, and runs those alone that reach a mutant.

A test is a function with all its parameters, named `tests/unit/api/test_crd.py::test_it`.
"""

import json
import os
from collections import Counter
from pathlib import Path

import coverage
import pytest

ONLY = "ONLY_THESE_TESTS"
"""The variable that names a file of tests, one a line: they run in its order, and no others."""

MEASURED = Path("measured")
REACH, SECONDS, FAILURES = "reach", "seconds.json", "failures"
"""What coverage finds, how long each test took, and which have failed; written into that folder at the end."""

LAST = "tests/unit/engine/test_every_table.py"
"""It looks at the histories of all tables, and each is told once: before the others, it would be the only test that
runs the engine for them."""

SPENT: Counter[str] = Counter()
FAILED = list[str]()
RUNNING = pytest.StashKey[str]()


CHILDREN = MEASURED / "children.ini"
OF_CHILDREN = """[run]
data_file = {root}/{data}
parallel = true
source =
    {root}/operator
    {root}/trainer
context = ${{PYTEST_CURRENT_TEST-}}
patch = _exit
disable_warnings = no-data-collected, module-not-measured, module-not-imported
"""
"""How coverage measures a program that a test starts: what it runs is reached by that test."""


def name_of(test: str) -> str:
    """The test that an item belongs to, by pytest's id for it, or by its id and stage in PYTEST_CURRENT_TEST."""
    return test.partition("[")[0].partition(" ")[0]


def pytest_sessionstart() -> None:
    """Only programs that are started from here on find the variable: this process is measured already."""
    if coverage.Coverage.current():
        CHILDREN.write_text(OF_CHILDREN.format(root=Path.cwd(), data=MEASURED / REACH), encoding="utf-8")
        os.environ["COVERAGE_PROCESS_START"] = str(CHILDREN.absolute())


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keeps the tests that are asked for, in their order."""
    items.sort(key=lambda item: item.nodeid.startswith(LAST))
    if only := os.environ.get(ONLY):
        places = {name: place for place, name in enumerate(Path(only).read_text(encoding="utf-8").splitlines())}
        wanted = [item for item in items if name_of(item.nodeid) in places]
        items[:] = sorted(wanted, key=lambda item: places[name_of(item.nodeid)])


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> None:
    """What runs now runs for this test. Told once for all its parameters: each time coverage writes all it has."""
    measuring, name = coverage.Coverage.current(), name_of(item.nodeid)
    if measuring and item.session.stash.get(RUNNING, "") != name:
        item.session.stash[RUNNING] = name
        measuring.switch_context(name)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """A test's setup, its call or its teardown."""
    SPENT[name_of(report.nodeid)] += report.duration
    if report.failed:
        FAILED.append(name_of(report.nodeid))


def pytest_sessionfinish() -> None:
    """Once all have run."""
    if coverage.Coverage.current():
        (MEASURED / SECONDS).write_text(json.dumps(SPENT), encoding="utf-8")
        (MEASURED / FAILURES).write_text("\n".join(FAILED), encoding="utf-8")
