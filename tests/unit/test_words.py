"""What people are told is in the words of docs/reference/glossary.md."""

import ast
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "operator" / "ddpjob_operator"
ROOMS = ("cli", "client", "engine")
"""Those that write what is told."""
FORBIDDEN = {
    "made anew": "recreated",
    "told to end": "told to stop",
    "nine in ten": "90%",
    "pods and the Service exist": "no pods are told of where there are none",
    **{f"{{}} {noun}": "counted(), for which 1 is singular" for noun in ("nodes", "pods", "processes", "ranks")},
}
"""What no text says, and what it says instead. A value within it is {}."""


def test_no_text_has_another_word_than_the_glossary() -> None:
    texts = [text for room in ROOMS for file in (PACKAGE / room).rglob("*.py") for text in _texts(file)]
    assert "because it was told to stop" in "".join(texts), "they are found"
    assert [(text, instead) for text in texts for word, instead in FORBIDDEN.items() if word in text] == []


def _texts(file: Path) -> Iterator[str]:
    """All strings of a module, and what is told of its code."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
