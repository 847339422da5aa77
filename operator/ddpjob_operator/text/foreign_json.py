"""Parses JSON that other programs have written: supervisors, API servers, registries, whoever can write a file.

Python's parser accepts any depth up to its own limit of recursion, beyond which it raises an error that is no
ValueError. What is nested almost that deeply is parsed, and then breaks whoever walks through it. Size is bounded by
those who read.
"""

import json
from typing import Any

MOST_DEPTH = 64
"""How deeply lists and objects may be nested. A job's pod template, the deepest of all, has 20 levels."""
TOO_DEEP = f"it is nested more than {MOST_DEPTH} levels deep"


def parsed(content: str | bytes) -> Any:
    """The value of a JSON text.

        parsed(b'{"kind": "Over"}')  # {"kind": "Over"}

    Raises:
        ValueError: It is not JSON, or nested more than MOST_DEPTH levels deep.
    """
    try:
        value = json.loads(content)
    except RecursionError:
        raise ValueError(TOO_DEEP) from None
    level = [[value]]
    for _ in range(MOST_DEPTH + 1):
        level = [_elements(each) for holder in level for each in holder if isinstance(each, dict | list)]
    if level:
        raise ValueError(TOO_DEEP)
    return value


def parsed_or_none(content: str | bytes) -> Any:
    """The value of a JSON text; None if `parsed` does not accept the text."""
    try:
        return parsed(content)
    except ValueError:
        return None


def parsed_object(content: str | bytes) -> dict[str, Any] | None:
    """The JSON object in a text; None if `parsed` does not accept the text, or finds anything else in it."""
    value = parsed_or_none(content)
    return value if isinstance(value, dict) else None


def _elements(holder: dict[str, Any] | list[Any]) -> list[Any]:
    return [*holder.values()] if isinstance(holder, dict) else holder
