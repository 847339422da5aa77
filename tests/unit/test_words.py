"""What people are told is in the words of docs/reference/glossary.md, and in sentences that are read once."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "operator" / "ddpjob_operator"
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
RIDDLES = {
    r"[,;] (?:of|for|from|to) which": "two sentences, or the noun again",
    r"\bha(?:s|ve) not (?:th|a|an|its)\b": "lacks",
    r"(?<!there )\bis no (?!longer)": "is not a",
    r"\bthere any more\b": "no longer exists",
    r"\bleave \w+ away\b": "leave out",
    r"\ball the same\b": "anyway",
    r"\bwas not let in\b": "refused",
    r", since ": "because, for a reason",
    r"\bwhat (?:it|that|he|she) (?:says|tells|gives)\b": "the noun",
}
"""Constructions of which a reader asks what they mean, and what to write: CONTRIBUTING.md, Messages."""


def test_no_text_has_another_word_than_the_glossary() -> None:
    texts = [text for room in ROOMS for file in (PACKAGE / room).rglob("*.py") for text in _texts(file)]
    assert "because it was told to stop" in "".join(texts), "they are found"
    assert [(text, instead) for text in texts for word, instead in FORBIDDEN.items() if word in text] == []


def test_no_message_of_the_command_the_engine_or_a_pod_is_a_riddle() -> None:
    rooms = [
        *(PACKAGE / room for room in ("cli", "client", "engine", "history", "local", "report")),
        ROOT / "trainer",
    ]
    texts = [(file.name, text) for room in rooms for file in room.rglob("*.py") for text in _texts(file, shown=True)]
    assert len(texts) > 1000, "they are found"
    found = [(*place, instead) for place in texts for bad, instead in RIDDLES.items() if re.search(bad, place[1])]
    assert found == []


def test_no_text_shows_the_call_that_should_have_filled_it() -> None:
    """An `f` that is missing before a part of a long string, which ruff's RUF027 does not see."""
    rooms = (PACKAGE, ROOT / "trainer")
    texts = [text for room in rooms for file in room.rglob("*.py") for text in _texts(file, shown=True)]
    assert [text for text in texts if re.search(r"\{\w+\([^}]*\)\}", text)] == []


@cache
def _texts(file: Path, *, shown: bool = False) -> list[str]:
    return [*_read(file, shown=shown)]


def _read(file: Path, *, shown: bool) -> Iterator[str]:
    """All strings of a module, and what is told of its code; `shown`: without the latter."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    told_of_code = {node.value for node in ast.walk(tree) if shown and isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in told_of_code:
            yield node.value
