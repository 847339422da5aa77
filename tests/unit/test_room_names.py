"""A name stands for one thing in a program: no file name in two rooms, and no name for two types."""

import ast
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAMS = {name: ROOT / name for name in ("operator", "trainer")}
RIGHTLY = {
    "operator": {"status": "a command's module has the command's name, and a part of the type that of the field"},
    "trainer": {
        "entry": "the first lines of a command",
        "main": "a command",
    },
}
"""File names that stand in two rooms, and why."""


def repeated(places: Iterable[tuple[str, Path]]) -> dict[str, list[str]]:
    """The names with more than one place."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for name, file in places:
        found[name].append(file.relative_to(ROOT).as_posix())
    return {name: sorted(files) for name, files in found.items() if len(files) > 1}


def public_types(file: Path) -> list[str]:
    nodes = ast.parse(file.read_text(encoding="utf-8")).body
    return [node.name for node in nodes if isinstance(node, ast.ClassDef) and not node.name.startswith("_")]


@pytest.mark.parametrize("program", PROGRAMS)
def test_no_file_name_stands_in_two_rooms(program: str) -> None:
    files = (file for file in PROGRAMS[program].rglob("*.py") if not file.stem.startswith("__"))
    twice = repeated((file.stem, file) for file in files)
    assert twice.keys() >= RIGHTLY[program].keys(), "an exception that is none any more"
    assert {name: files for name, files in twice.items() if name not in RIGHTLY[program]} == {}


@pytest.mark.parametrize("program", PROGRAMS)
def test_no_name_stands_for_two_types(program: str) -> None:
    assert repeated((name, file) for file in PROGRAMS[program].rglob("*.py") for name in public_types(file)) == {}
