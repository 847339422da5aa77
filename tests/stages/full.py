"""Prints a table of the tests that only `make test-full` runs: `python -m tests.stages.full`."""

import contextlib
import io
import sys
from collections import Counter

import pytest

from .table import STAGES


class Marked:
    """Counts tests that are marked as full, by file and reason."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, str]] = Counter()

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Called by pytest when it has collected all tests."""
        for item in session.items:
            if mark := item.get_closest_marker("full"):
                self.counts[item.location[0], mark.args[0]] += 1


def main() -> int:
    """Collects all tests and prints the table."""
    marked, said = Marked(), io.StringIO()
    tests = [test for stage in STAGES for test in stage.tests]
    with contextlib.redirect_stdout(said):
        code = pytest.main(["--collect-only", "-m", "full", *tests], plugins=[marked])
    if code not in {pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED}:
        print(said.getvalue(), file=sys.stderr)
        return int(code)
    print("Only in make test-full:")
    width = max((len(file) for file, _ in marked.counts), default=0)
    for (file, why), count in sorted(marked.counts.items()):
        print(f"{count:>5}  {file:<{width}}  {why}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
