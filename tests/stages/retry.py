"""A failed test runs once more, alone: what a busy machine broke passes then, and is printed as FLAKY.

Each of them is a bug to cure, not a pass: the second run hides what fails only in company. So the first failure is
shown whole, and a line is printed for the list of flaky tests, which is committed. There may be only a few; where
nothing depends on the machine's load no test has a second run, and none that stands in the list twice.
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
    """Which of the failed tests are flaky, and which failed for good."""

    flaky: list[Failure]
    failed: list[Failure]

    @property
    def is_red(self) -> bool:
        """Whether the run has failed: by one test that did twice, or by too many that did once."""
        return bool(self.failed) or len(self.flaky) > MOST_FLAKY


def judge(failures: Collection[Failure], changed: Collection[str], passes_alone: Callable[[str], bool]) -> Verdict:
    """Runs failed tests again, as long as that can still change the verdict.

    changed       files of tests that the commit itself changes: these have to pass at once
    passes_alone  runs one test by its id, alone
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
    """What is to be added to the list."""
    return f"| {dt.datetime.now(dt.UTC).date()} | `{failure.test}` | not known yet |"


def _listed() -> Counter[str]:
    """How often each test stands in the list."""
    rows = LIST.read_text(encoding="utf-8").splitlines() if LIST.exists() else []
    return Counter(row.split("`")[1] for row in rows if row.count("`") > 1)
