"""A failed test runs once more, alone: what a busy machine broke passes then, and is printed as FLAKY.

Each of them is a bug to cure, not a pass: the second run hides what fails only in company. So the first failure is
shown whole, there may be only a few, and where nothing depends on the machine's load no test has a second run.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass

from .recorder import Failure
from .table import NEVER_RETRIED

MOST_FLAKY = 3


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
    return bool(name) and not test.startswith(NEVER_RETRIED) and file not in changed
