"""The house of tests is as its page says."""

import re
from pathlib import Path

from tests.stages.table import STAGES

TESTS = Path(__file__).parents[1]
PAGE = (TESTS / "README.md").read_text(encoding="utf-8")
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


def test_each_test_is_in_a_stage() -> None:
    by_make = ("tests/unit", "tests/kind")
    staged = (*by_make, *(test for stage in STAGES for test in stage.tests))
    files = (file.relative_to(TESTS.parent).as_posix() for file in TESTS.rglob("test_*.py"))
    assert [file for file in files if not f"{file}/".startswith(tuple(f"{test}/" for test in staged))] == []
