"""Runs a failed test once more, alone. If it fails only because the machine is busy, it passes then, and is FLAKY.

Each flaky test is a bug to fix, not a success: the second run hides failures that occur only beside other tests. So
the output of the first failure is shown in full, and a line is printed for the list of flaky tests, which is
committed. Only a few tests may be flaky. Tests that do not depend on the machine's load have no second run, nor do
tests that are in the list twice.
"""

import datetime as dt
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

from .recorder import Failure
from .table import NEVER_RETRIED

MOST_FLAKY = 3
LIST = Path("tests/flaky.md")
TWICE = 2


@dataclass
class Verdict:
    """Which of the failed tests are flaky, and which count as failed."""

    flaky: list[Failure]
    failed: list[Failure]

    @property
    def is_red(self) -> bool:
        """Whether the run has failed: a test has failed twice, or too many tests have failed once."""
        return bool(self.failed) or len(self.flaky) > MOST_FLAKY


def judge(failures: Collection[Failure], changed: Collection[str], passes_alone: Callable[[str], bool]) -> Verdict:
    """Runs failed tests again, as long as that can still change the verdict.

    changed       test files that the commit itself changes: their tests must pass in the first run
    passes_alone  runs one test by its ID, alone
    """
    verdict = Verdict([], [])
    hopeless = len(failures) > MOST_FLAKY
    for failure in failures:
        again = not hopeless and _may_run_again(failure.test, changed) and passes_alone(failure.test)
        (verdict.flaky if again else verdict.failed).append(failure)
    return verdict


def _may_run_again(test: str, changed: Collection[str]) -> bool:
    file, _, name = test.partition("::")
    return bool(name) and not test.startswith(NEVER_RETRIED) and file not in changed and _listed()[test] < TWICE


def line(failure: Failure) -> str:
    """The line to add to the list."""
    return f"| {dt.datetime.now(dt.UTC).date()} | `{failure.test}` | not known yet |"


def _listed() -> Counter[str]:
    """How often each test is in the list."""
    rows = LIST.read_text(encoding="utf-8").splitlines() if LIST.exists() else []
    return Counter(row.split("`")[1] for row in rows if row.count("`") > 1)
