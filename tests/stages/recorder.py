"""A pytest plugin that records each test, its cost and why it failed: `-p tests.stages.recorder`.

Each pytest process writes its own file into the folder that `--record` names.
"""

import json
import os
import re
import sys
import time
from collections import defaultdict
from collections.abc import Generator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytest

LEFT = "left"
COST = "cost"
"""The name of a test property: seconds on the clock and CPU seconds, from the test's setup to its teardown, including
processes that it has started and that have ended by then."""

FIRST_LINES, LAST_LINES, MOST_OF_LINE = 2, 6, 200
"""Which lines of a failure's message are shown at the end of a run: its beginning contains the assertion, its end the
end of a log."""


@dataclass(frozen=True)
class Ran:
    """A test that was run or skipped: its ID for pytest, its seconds on the clock, and its CPU seconds."""

    test: str
    skipped: bool
    wall: float
    cpu: float


@dataclass(frozen=True)
class Failure:
    """A test that failed, or a file whose tests could not be collected: its ID for pytest, and the whole output."""

    test: str
    output: str

    @property
    def why(self) -> list[str]:
        """The lines that pytest marks as the error. If there are none, the first lines of the output."""
        lines = [line for line in self.output.splitlines() if line.strip()]
        marked = [line[1:] for line in lines if re.match(r"E\s+(?!Use -v )\S", line)]
        unmarked = [line for line in lines if not re.fullmatch(r"\((setup|call|teardown)\)|\[gw\d+\] .*", line)]
        shown = [line.strip()[:MOST_OF_LINE] for line in marked or unmarked]
        return shown if len(shown) <= FIRST_LINES + LAST_LINES else [*shown[:FIRST_LINES], "…", *shown[-LAST_LINES:]]


@dataclass(frozen=True)
class Record:
    """The results of a run of pytest."""

    tests: tuple[Ran, ...] = ()
    failures: tuple[Failure, ...] = ()
    left: tuple[str, ...] = ()
    """Tests that were left out because of a mark."""

    @classmethod
    def read(cls, folder: Path) -> "Record":
        """Reads everything that was written into a folder."""
        documents = [json.loads(file.read_text()) for file in sorted(folder.glob("*.json"))]
        return cls(
            tuple(Ran(**test) for document in documents for test in document["tests"]),
            tuple(Failure(**failure) for document in documents for failure in document["failures"]),
            tuple(test for document in documents for test in document["left"]),
        )


def flags(folder: Path) -> list[str]:
    """The flags that make pytest write a record.

    IDs of tests are relative to the present directory, so that they can be passed to pytest again.
    """
    return [f"--rootdir={Path.cwd()}", "-p", "tests.stages.recorder", f"--record={folder}"]


def command(folder: Path, arguments: Sequence[str]) -> list[str]:
    """The command line of pytest with a record."""
    return [sys.executable, "-m", "pytest", *flags(folder), *arguments]


class Recorder:
    """Receives the report on each test, even if the test runs in another process."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._tests: dict[str, Ran] = {}
        self._said: dict[str, list[str]] = defaultdict(list)
        self._left: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Called after a test's setup, its call and its teardown."""
        if report.failed:
            self._said[report.nodeid] += [f"({report.when})", report.longreprtext]
            self._said[report.nodeid] += [f"--- {title}\n{text}" for title, text in report.sections]
        if report.when == "teardown":
            wall, cpu = dict(report.user_properties).get(COST, (0.0, 0.0))
            skipped = report.nodeid in self._tests
            self._tests[report.nodeid] = Ran(report.nodeid, skipped, round(wall, 3), round(cpu, 3))
        elif report.skipped:
            self._tests[report.nodeid] = Ran(report.nodeid, skipped=True, wall=0.0, cpu=0.0)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Called for each file.

        If its tests cannot be collected, pytest-xdist ends as if one of its tests had failed.
        """
        if report.failed:
            self._said.setdefault(report.nodeid, [report.longreprtext])  # All processes report the same.

    def pytest_deselected(self, items: Sequence[pytest.Item]) -> None:
        """Called for tests that a mark leaves out. With several processes, each reports them when it ends."""
        self._left.update(item.nodeid for item in items)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Called when a process of pytest-xdist has ended."""
        self._left.update(getattr(node, "workeroutput", {}).get(LEFT, ()))

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        """Writes the file, which therefore exists only if pytest has reached its end."""
        failures = tuple(Failure(test, "\n".join(words)) for test, words in self._said.items())
        record = Record(tuple(self._tests.values()), failures, tuple(self._left))
        (self._folder / f"{os.getpid()}.json").write_text(json.dumps(asdict(record)))


class Meter:
    """Measures tests, in the process that runs them."""

    def __init__(self, output: dict[str, Any]) -> None:
        """`output` is passed at the end to the process that receives the reports on all tests."""
        self._begun = (0.0, 0.0)
        self._output = output

    def pytest_deselected(self, items: Sequence[pytest.Item]) -> None:
        """Called for tests that a mark leaves out."""
        self._output.setdefault(LEFT, []).extend(item.nodeid for item in items)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self) -> None:
        """Called before the fixtures that the test needs are created."""
        self._begun = _now()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[Any]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Adds the property after the teardown, because the report contains the properties of that time."""
        if call.when == "teardown":
            item.user_properties.append((COST, [now - begun for now, begun in zip(_now(), self._begun, strict=True)]))
        return (yield)


def _now() -> tuple[float, float]:
    used = os.times()
    return time.monotonic(), used.user + used.system + used.children_user + used.children_system


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the option for the folder."""
    parser.addoption("--record", type=Path, metavar="FOLDER", help="writes down tests, their costs and failures")


def pytest_configure(config: pytest.Config) -> None:
    """Every process measures its tests. Only the process that receives all reports writes the record."""
    config.pluginmanager.register(Meter(getattr(config, "workeroutput", {})))
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Recorder(config.getoption("record")))
