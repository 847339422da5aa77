"""The house of tests is as its page says."""

import ast
import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.stages.table import STAGES

TESTS = Path(__file__).parents[1]
PAGE = (TESTS / "README.md").read_text(encoding="utf-8")
PLACE = re.compile(r"(?:[\w-]+/)+[\w-]+|test_\w+")
"""How a reason names a file or a folder: with those that it is in, or a test's by its name alone."""
ANOTHERS = re.compile(r"^\s*(from|import) tests\.\S*conftest", re.MULTILINE)


def test_each_folder_stands_on_the_page() -> None:
    folders = {folder.name for folder in TESTS.iterdir() if folder.is_dir() and any(folder.glob("**/*.py"))}
    assert folders - {"support"} == set(re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE))


def test_each_file_on_the_page_is_there() -> None:
    for line in PAGE.splitlines():
        folder = ""
        for name in re.findall(r"`([\w/]+/|[\w/]*test_\w+\.py)`", line):
            folder = name.rpartition("/")[0] or folder
            assert (TESTS / folder / name.rpartition("/")[2]).exists(), f"{name} in: {line}"


def test_no_folder_imports_another_one_s_conftest() -> None:
    files = {file.relative_to(TESTS).as_posix(): file.read_text(encoding="utf-8") for file in TESTS.rglob("*.py")}
    assert [name for name, text in files.items() if ANOTHERS.search(text)] == []


def test_no_directory_of_the_user_is_a_tests_business() -> None:
    files = (file for room in ("operator", "trainer") for file in (TESTS.parent / room).rglob("*.py"))
    read = {name for file in files for name in re.findall(r"XDG_\w+_HOME", file.read_text(encoding="utf-8"))}
    assert {"XDG_STATE_HOME", "XDG_CONFIG_HOME"} <= read
    elsewhere = Path(tempfile.gettempdir())
    assert [name for name in read if elsewhere not in Path(os.environ.get(name, "")).parents] == []


def test_each_test_is_in_a_stage() -> None:
    by_make = ("tests/unit", "tests/kind")
    staged = (*by_make, *(test for stage in STAGES for test in stage.tests))
    files = (file.relative_to(TESTS.parent).as_posix() for file in TESTS.rglob("test_*.py"))
    assert [file for file in files if not f"{file}/".startswith(tuple(f"{test}/" for test in staged))] == []


def test_what_only_the_full_tests_run_is_shown_where_their_reason_says() -> None:
    there = [
        f"/{place.with_suffix('').as_posix()}" for room in (TESTS, TESTS.parent / "docs") for place in room.rglob("*")
    ]
    named = [(place, reason) for reason in _reasons() for place in PLACE.findall(reason)]
    assert named
    missing = {place: reason for place, reason in named if not any(one.endswith(f"/{place}") for one in there)}
    assert missing == {}


def _reasons() -> Iterator[str]:
    """The reasons that stand in marks which leave a test to the full tests; those of a table name no file."""
    for file in TESTS.rglob("*.py"):
        if "pytest.mark.full" not in (text := file.read_text(encoding="utf-8")):
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.full":
                yield from (one.value for one in node.args if isinstance(one, ast.Constant))
