"""The parts of the reference that a run of tests or of a bench writes: what stands between two marks of a page."""

import re
from collections.abc import Sequence
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"
REFERENCE, HOW_TO = DOCS / "reference", DOCS / "how-to"
END = "<!-- end of measured -->"


def begin(name: str) -> str:
    """The line before a part of a page."""
    return f"<!-- measured: {name} -->"


def read(page: Path, name: str) -> str:
    """What stands between the marks of a part."""
    return _found(page, name)[1]


def write(page: Path, name: str, lines: Sequence[str]) -> None:
    """Puts lines between the marks of a part, in place of those that were there."""
    found = _found(page, name)
    fresh = "\n".join([begin(name), *lines, END])
    page.write_text(found.string[: found.start()] + fresh + found.string[found.end() :], encoding="utf-8")


def _found(page: Path, name: str) -> re.Match[str]:
    text = page.read_text(encoding="utf-8")
    parts = [*re.finditer(f"{re.escape(begin(name))}\n(.*?){re.escape(END)}", text, re.DOTALL)]
    if len(parts) != 1:
        raise ValueError(f"{page} must have one part between {begin(name)} and {END}, and has {len(parts)}")
    return parts[0]
