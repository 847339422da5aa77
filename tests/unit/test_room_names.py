"""A name stands for one thing: no file name in two rooms of the operator, and no name for two types."""

import ast
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "operator" / "ddpjob_operator"
RIGHTLY = {"status": "a command's module has the command's name, and a part of the type that of the field"}
"""File names that stand in two rooms, and why."""


def repeated(places: Iterable[tuple[str, Path]]) -> dict[str, list[str]]:
    """The names with more than one place."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for name, file in places:
        found[name].append(file.relative_to(PACKAGE).as_posix())
    return {name: sorted(files) for name, files in found.items() if len(files) > 1}


def public_types(file: Path) -> list[str]:
    nodes = ast.parse(file.read_text(encoding="utf-8")).body
    return [node.name for node in nodes if isinstance(node, ast.ClassDef) and not node.name.startswith("_")]


def test_no_file_name_stands_in_two_rooms() -> None:
    twice = repeated((file.stem, file) for file in PACKAGE.rglob("*.py") if file.stem != "__init__")
    assert twice.keys() >= RIGHTLY.keys(), "an exception that is none any more"
    assert {name: files for name, files in twice.items() if name not in RIGHTLY} == {}


def test_no_name_stands_for_two_types() -> None:
    assert repeated((name, file) for file in PACKAGE.rglob("*.py") for name in public_types(file)) == {}
