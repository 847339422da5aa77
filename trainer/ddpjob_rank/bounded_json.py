"""Parses JSON that other programs have written: the ranks' scripts, packages, whoever can write a file.

As in the operator's `text.foreign_json`: Python's parser accepts any depth up to its own limit of recursion, beyond
which it raises an error that is no ValueError. Size is bounded by those who read.
"""

import json
from typing import Any

MOST_DEPTH = 64
"""How deeply lists and objects may be nested."""
TOO_DEEP = f"it is nested more than {MOST_DEPTH} levels deep"


def parsed(content: str | bytes) -> Any:
    """The value of a JSON text.

        parsed(b'{"cause": "Application"}')  # {"cause": "Application"}

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


def _elements(holder: dict[str, Any] | list[Any]) -> list[Any]:
    return [*holder.values()] if isinstance(holder, dict) else holder
