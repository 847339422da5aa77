"""Builds the Markdown of generated sections."""

from collections.abc import Iterable

import yaml


def table(headings: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """A table."""
    columns = tuple(headings)
    lines = [columns, ("---",) * len(columns), *(tuple(_cell(value) for value in row) for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def code(value: object) -> str:
    """A value as code; empty for None or an empty text."""
    return f"`{value}`" if value not in (None, "") else ""


def as_yaml(document: object) -> str:
    """A YAML block."""
    return f"```yaml\n{yaml.safe_dump(document, sort_keys=False, width=100)}```\n"


def _cell(value: object) -> str:
    return " ".join(str(value).split()).replace("|", "\\|")
