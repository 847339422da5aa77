"""Draws the diagram of the rooms (packages and subpackages) in CONTRIBUTING.md, from their imports."""

import tomllib
from pathlib import Path

import grimp

PYPROJECT = Path(__file__).resolve().parents[2] / "pyproject.toml"
OPERATOR = "ddpjob_operator"
PACKAGES: set[str] = {*tomllib.loads(PYPROJECT.read_text("utf-8"))["tool"]["importlinter"]["root_packages"]}
PARTS = {"Operator and command": (OPERATOR,), "In the pod": tuple(sorted(PACKAGES - {OPERATOR}))}
"""The packages in each frame of the diagram. A single package is drawn as its subpackages."""


def picture() -> str:
    """A Mermaid flowchart of the imports. An arrow is left out if other arrows imply it."""
    lines = ["```mermaid", "flowchart TD"]
    for frame, packages in PARTS.items():
        imports = _imports(packages)
        arrows = ((room, one) for room in imports for one in sorted(_direct(room, imports)))
        lines += [f'  subgraph "{frame}"', *(f"    {room}" for room in imports)]
        lines += [*(f"    {room} --> {one}" for room, one in arrows), "  end"]
    return "\n".join([*lines, "```"])


def _imports(packages: tuple[str, ...]) -> dict[str, set[str]]:
    """The other rooms that each room imports, by the room's short name."""
    graph = grimp.build_graph(*packages, cache_dir=None)
    inner = (one for one in graph.find_children(packages[0]) if graph.find_children(one))
    rooms = sorted(packages if len(packages) > 1 else inner)
    for room in rooms:
        graph.squash_module(room)
    short = {room: room.rpartition(".")[2] for room in rooms}
    found = {room: graph.find_modules_directly_imported_by(room) - {room} for room in rooms}
    return {short[room]: {short[one] for one in others if one in short} for room, others in found.items()}


def _direct(room: str, imports: dict[str, set[str]]) -> set[str]:
    """The rooms that a room imports without also reaching them through another room."""
    return imports[room] - set().union(*(_reached(via, imports) for via in imports[room]))


def _reached(room: str, imports: dict[str, set[str]]) -> set[str]:
    """All rooms that a room imports, directly or indirectly. There are no cycles."""
    return imports[room].union(*(_reached(one, imports) for one in imports[room]))
