"""Checks that tests named as proof on a page exist, and that those only in `make test-full` are marked."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)(?:\[([^\]]+)\])?`( \(full\))?")


@dataclass(frozen=True)
class Content:
    """The relevant content of a file of tests.

    tests  functions and classes
    texts  all strings in the file, which include the names of rows
    full   names of tests, and of rows of tables, that only `make test-full` runs
    """

    tests: frozenset[str]
    texts: frozenset[str]
    full: frozenset[str]


def mistakes(text: str) -> Iterator[str]:
    """Yields mistakes in the names of tests that a page's text has in backquotes, as ``file::test[row]``."""
    named = NAMED.findall(text)
    if not named or len(named) != text.count("::"):
        yield f"names no test, or not as pytest has it: {text}"
    for file, test, row, full in named:
        if not (ROOT / file).is_file():
            yield f"there is no {file}"
            continue
        content = _content(file)
        if test not in content.tests:
            yield f"{file} has no {test}"
        if row and row not in content.texts and not (ROOT / row).is_file():
            yield f"{file} has no row {row!r}"
        if bool(full) != bool({test, row} & content.full):
            yield f"{test}: {'make test runs it: without (full)' if full else 'only make test-full runs it: (full)'}"


@cache
def _content(file: str) -> Content:
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    tests = {one.name: one for one in tree.body if isinstance(one, ast.FunctionDef | ast.ClassDef)}
    marks = {"pytest.mark.full"} | {
        target.id
        for one in tree.body
        if isinstance(one, ast.Assign) and "pytest.mark.full" in ast.unparse(one.value)
        for target in one.targets
        if isinstance(target, ast.Name)
    }

    def marked(node: ast.expr) -> bool:
        return ast.unparse(node.func if isinstance(node, ast.Call) else node) in marks

    all_of_it = "pytestmark" in marks
    full = {name for name, test in tests.items() if all_of_it or any(map(marked, test.decorator_list))}
    rows = {
        text.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.param"
        if any(mark.arg == "marks" and marked(mark.value) for mark in node.keywords)
        for text in (*node.args, *(one.value for one in node.keywords if one.arg == "id"))
        if isinstance(text, ast.Constant) and isinstance(text.value, str)
    }
    texts = {one.value for one in ast.walk(tree) if isinstance(one, ast.Constant) and isinstance(one.value, str)}
    return Content(frozenset(tests), frozenset(texts), frozenset(full | rows))
