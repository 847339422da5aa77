"""A plugin of pytest's that writes down each test, what it took and why it failed: `-p tests.stages.recorder`.

Each pytest writes a file of its own into the folder that `--record` names.
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
"""A property of a test: seconds by the clock and of the cores, from its setup to its teardown, with what it started
and ended meanwhile."""

FIRST_LINES, LAST_LINES, MOST_OF_LINE = 2, 6, 200
"""Of what the end of a run says of each failure: what was asserted stands first, the end of a log last."""


@dataclass(frozen=True)
class Ran:
    """A test that was run or skipped: its id for pytest, and its seconds by the clock and of the cores."""

    test: str
    skipped: bool
    wall: float
    cpu: float


@dataclass(frozen=True)
class Failure:
    """A test that failed, or a file whose tests could not be collected: its id for pytest, and all that was said."""

    test: str
    output: str

    @property
    def why(self) -> list[str]:
        """The lines that pytest marks as the error; without any, the first that were said."""
        lines = [line for line in self.output.splitlines() if line.strip()]
        marked = [line[1:] for line in lines if re.match(r"E\s+(?!Use -v )\S", line)]
        unmarked = [line for line in lines if not re.fullmatch(r"\((setup|call|teardown)\)|\[gw\d+\] .*", line)]
        shown = [line.strip()[:MOST_OF_LINE] for line in marked or unmarked]
        return shown if len(shown) <= FIRST_LINES + LAST_LINES else [*shown[:FIRST_LINES], "…", *shown[-LAST_LINES:]]


@dataclass(frozen=True)
class Record:
    """What came of a pytest."""

    tests: tuple[Ran, ...] = ()
    failures: tuple[Failure, ...] = ()
    left: tuple[str, ...] = ()
    """Tests that a mark left out."""

    @classmethod
    def read(cls, folder: Path) -> "Record":
        """All that was written into a folder."""
        documents = [json.loads(file.read_text()) for file in sorted(folder.glob("*.json"))]
        return cls(
            tuple(Ran(**test) for document in documents for test in document["tests"]),
            tuple(Failure(**failure) for document in documents for failure in document["failures"]),
            tuple(test for document in documents for test in document["left"]),
        )


def flags(folder: Path) -> list[str]:
    """What has a pytest record. The ids of tests are relative to the directory: so they can be given to it again."""
    return [f"--rootdir={Path.cwd()}", "-p", "tests.stages.recorder", f"--record={folder}"]


def command(folder: Path, arguments: Sequence[str]) -> list[str]:
    """pytest, with a record."""
    return [sys.executable, "-m", "pytest", *flags(folder), *arguments]


class Recorder:
    """Hears of each test, also of those that run in other processes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._tests: dict[str, Ran] = {}
        self._said: dict[str, list[str]] = defaultdict(list)
        self._left: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A test's setup, its call or its teardown."""
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
        """A file without its tests: with several processes, pytest ends as if one of its tests had failed."""
        if report.failed:
            self._said.setdefault(report.nodeid, [report.longreprtext])  # Each process tells the same.

    def pytest_deselected(self, items: Sequence[pytest.Item]) -> None:
        """By a mark; where several processes run tests, each of them tells it at its end."""
        self._left.update(item.nodeid for item in items)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """A process of pytest-xdist's."""
        self._left.update(getattr(node, "workeroutput", {}).get(LEFT, ()))

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        """The file is there only once pytest has come to its end."""
        failures = tuple(Failure(test, "\n".join(words)) for test, words in self._said.items())
        record = Record(tuple(self._tests.values()), failures, tuple(self._left))
        (self._folder / f"{os.getpid()}.json").write_text(json.dumps(asdict(record)))


class Meter:
    """Measures tests, in the process that runs them."""

    def __init__(self, output: dict[str, Any]) -> None:
        """output: what the process that hears of all tests is told at the end."""
        self._begun = (0.0, 0.0)
        self._output = output

    def pytest_deselected(self, items: Sequence[pytest.Item]) -> None:
        """By a mark."""
        self._output.setdefault(LEFT, []).extend(item.nodeid for item in items)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self) -> None:
        """Before all that the test needs is made."""
        self._begun = _now()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[Any]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """After its teardown: the report takes the properties that a test has by then."""
        if call.when == "teardown":
            item.user_properties.append((COST, [now - begun for now, begun in zip(_now(), self._begun, strict=True)]))
        return (yield)


def _now() -> tuple[float, float]:
    used = os.times()
    return time.monotonic(), used.user + used.system + used.children_user + used.children_system


def pytest_addoption(parser: pytest.Parser) -> None:
    """Where to."""
    parser.addoption("--record", type=Path, metavar="FOLDER", help="writes down tests, their costs and failures")


def pytest_configure(config: pytest.Config) -> None:
    """Each process measures; the one that hears of all tests writes."""
    config.pluginmanager.register(Meter(getattr(config, "workeroutput", {})))
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Recorder(config.getoption("record")))
