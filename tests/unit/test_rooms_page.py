"""The pages say which room imports which, and lead to files that there are."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "operator" / "ddpjob_operator"
PAGE = (ROOT / "docs" / "explanation" / "how-it-works.md").read_text(encoding="utf-8")
ROOMS = dict(re.findall(r"^ +(\w+)/ .*\. Imports ([\w, ]+)$", PAGE, re.MULTILINE))
IMPORT = re.compile(r"^ *(?:from|import) ddpjob_operator\.(\w+)", re.MULTILINE)
TUTORIAL = re.compile(r'tutorial "([^"]+)"')
NOTES = ROOT / "charts" / "ddpjob-operator" / "templates" / "NOTES.txt"


def test_each_room_stands_on_the_page() -> None:
    assert set(ROOMS) == {room.name for room in PACKAGE.iterdir() if (room / "__init__.py").exists()}


@pytest.mark.parametrize("room", ROOMS)
def test_the_page_says_what_a_room_imports(room: str) -> None:
    files = (file.read_text(encoding="utf-8") for file in (PACKAGE / room).rglob("*.py"))
    imported = {name for text in files for name in IMPORT.findall(text)} - {room}
    assert imported == set(ROOMS[room].split(", ")) - {"nothing of ours"}


def test_the_notes_after_an_install_name_files_that_there_are() -> None:
    files = re.findall(r"--filename (\S+)", NOTES.read_text(encoding="utf-8"))
    assert files
    assert [file for file in files if not (ROOT / file).is_file()] == []


def test_a_tutorial_that_a_message_names_has_this_title() -> None:
    titles = {page.read_text(encoding="utf-8").split("\n")[0] for page in (ROOT / "docs/tutorial").glob("*.md")}
    sources = (
        file.read_text(encoding="utf-8") for room in ("operator", "trainer") for file in (ROOT / room).rglob("*.py")
    )
    trees = (ast.parse(source) for source in sources if "tutorial" in source)  # It joins texts of several lines.
    named = [title for tree in trees for node in ast.walk(tree) for title in TUTORIAL.findall(_text(node))]
    assert len(named) >= 4
    assert {f"# {title}" for title in named} <= titles


def _text(node: ast.AST) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
