"""pytest with a list of what failed: `python -m tests.stages.recorder FILE [pytest's arguments]`."""

import json
import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest


@dataclass(frozen=True)
class Failure:
    """A test that failed, or a file whose tests could not be collected: its id for pytest, and all that was said."""

    test: str
    output: str


@dataclass(frozen=True)
class Record:
    """What came of pytest: its exit code, how many tests it ran, and which failed."""

    code: int
    ran: int
    failures: tuple[Failure, ...]

    @classmethod
    def read(cls, file: Path) -> "Record":
        """As it was written."""
        document = json.loads(file.read_text())
        return cls(document["code"], document["ran"], tuple(Failure(**failure) for failure in document["failures"]))


class Recorder:
    """Hears of each test, also of those that run in other processes."""

    def __init__(self) -> None:
        self.ran: set[str] = set()
        self.said: dict[str, list[str]] = defaultdict(list)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A test's setup, its call or its teardown."""
        if report.when == "call":
            self.ran.add(report.nodeid)
        if report.failed:
            self.said[report.nodeid] += [f"({report.when})", report.longreprtext]
            self.said[report.nodeid] += [f"--- {title}\n{text}" for title, text in report.sections]

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A file without its tests: with several processes, pytest ends as if one of its tests had failed."""
        if report.failed:
            self.said.setdefault(report.nodeid, [report.longreprtext])  # Each process tells the same.

    def record(self, code: int) -> Record:
        """All that was heard."""
        failures = (Failure(test, "\n".join(words)) for test, words in self.said.items())
        return Record(code, len(self.ran), tuple(failures))


def main(file: str, *arguments: str) -> int:
    """Runs pytest and writes the record; it is there only once pytest has come to its end."""
    recorder = Recorder()
    # The ids of tests are relative to it: so they can be given to pytest again.
    code = int(pytest.main([f"--rootdir={Path.cwd()}", *arguments], plugins=[recorder]))
    Path(file).write_text(json.dumps(asdict(recorder.record(code))))
    return code


def command(file: Path, arguments: Sequence[str]) -> list[str]:
    """How it is called."""
    return [sys.executable, "-m", "tests.stages.recorder", str(file), *arguments]


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
