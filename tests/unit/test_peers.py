"""docs/explanation/peers.md names only tests that there are."""

import re

import pytest

from tests.support.named import ROOT, mistakes

PAGE = ROOT / "docs" / "explanation" / "peers.md"
ISSUES = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if re.match(r"\| [^|]*#\d", line)]


def test_each_issue_has_its_line() -> None:
    assert len(ISSUES) == 33


@pytest.mark.parametrize("line", ISSUES, ids=lambda line: line.split("|")[1].strip())
def test_an_issue_names_tests_that_exist_and_says_which_are_run_each_night(line: str) -> None:
    assert [*mistakes(line)] == []
