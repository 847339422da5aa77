"""docs/explanation/peers.md names only tests that there are."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "explanation" / "peers.md"
ISSUES = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if re.match(r"\| [^|]*#\d", line)]
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)(?:\[([^\]]+)\])?`")


def test_each_issue_has_its_line() -> None:
    assert len(ISSUES) == 33


@pytest.mark.parametrize("line", ISSUES, ids=lambda line: line.split("|")[1].strip())
def test_an_issue_names_tests_that_exist(line: str) -> None:
    named = NAMED.findall(line)
    assert len(named) == line.count("::"), f"not the name of a test, as pytest has it, in: {line}"
    assert named, f"names no test: {line}"
    for file, test, row in named:
        tests, words = _content(file)
        assert test in tests, f"{file} has no {test}"
        assert not row or row in words, f"{file} has no row {row!r}"


@cache
def _content(file: str) -> tuple[frozenset[str], frozenset[str]]:
    """The tests of a file, and the texts in it: among them the names of rows."""
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    tests = {one.name for one in tree.body if isinstance(one, ast.FunctionDef | ast.ClassDef)}
    words = {one.value for one in ast.walk(tree) if isinstance(one, ast.Constant) and isinstance(one.value, str)}
    return frozenset(tests), frozenset(words)
