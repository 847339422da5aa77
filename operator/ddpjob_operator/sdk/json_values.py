"""Turns the arguments of a function into JSON. Nothing is pickled."""

import datetime as dt
import json
import math
import os
from collections.abc import Iterator, Mapping
from typing import Any

from ddpjob_operator.api import BadInputError
from ddpjob_operator.client.archive import readable

from .public_calls import shown

DEEPEST = 50
"""How many lists and dicts may be inside each other."""
MOST_BITS = 1024
"""The size of the largest whole number. Python refuses to write numbers that are much larger."""
FORMS = "numbers, strings, booleans, None, and lists and dicts of them"


def json_of(value: Any, place: str, most_bytes: int) -> bytes:
    """A value as JSON. `place` is what messages call it.

    Scalars of NumPy and tensors with one number become numbers, tuples become lists, and paths, dates and times
    become strings.

    Raises:
        BadInputError: It has a part that JSON cannot hold, which the message names, or is too large.
    """
    content = json.dumps(plain(value, place), ensure_ascii=False, separators=(",", ":")).encode()
    if len(content) > most_bytes:
        raise BadInputError(
            f"{place}: {readable(len(content))} of JSON, but at most {readable(most_bytes)} can be sent; put data"
            " into a file that the ranks can read, and pass its path"
        )
    return content


# `ddpjob_rank.reporting.result` does the same with results: the two programs share no code, but a test.
def plain(value: Any, place: str, depth: int = 0) -> Any:
    """A value in the types that JSON has. `place` is its place in the whole, as an expression.

    Raises:
        BadInputError: It has a part that JSON cannot hold.
    """
    if depth > DEEPEST:
        raise BadInputError(f"{place[:64]}… is nested more than {DEEPEST} levels deep; does it contain itself?")
    made: Any = value
    match value:
        case None | bool():
            pass
        case str():
            made = _text(str.__str__(value), place)  # str() of an Enum is its name.
        case int() | float():
            made = _number(value, place)
        case Mapping():
            made = dict(_items(value, place, depth))
        case list() | tuple():
            made = [plain(item, f"{place}[{index}]", depth + 1) for index, item in enumerate(value)]
        case dt.date() | dt.time():
            made = value.isoformat()
        case os.PathLike():
            made = _text(os.fsdecode(value), place)
        case _:
            made = plain(_from_scalar(value, place), place, depth + 1)
    return made


def _number(value: float, place: str) -> float:
    if isinstance(value, int):
        if value.bit_length() > MOST_BITS:
            raise BadInputError(f"{place} is a whole number of more than {MOST_BITS} bits; pass it as a string")
        return int(value)
    if not math.isfinite(value):
        raise BadInputError(f"{place} is {float(value)}, which JSON does not have; pass None or a string")
    return float(value)


def _from_scalar(value: Any, place: str) -> Any:
    """The number or time in a scalar of NumPy, or in an array or a tensor with one number, whatever its shape."""
    size = getattr(value, "numel", None) or getattr(value, "size", None)  # `size` of a tensor is its shape.
    if hasattr(value, "dtype") and (size() if callable(size) else size) == 1:
        return str(value.reshape(())) if getattr(value.dtype, "kind", "") in {"M", "m"} else value.item()
    kind = type(value)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    instead = "; of an array or a tensor: .tolist()" if hasattr(value, "tolist") else ""
    raise BadInputError(f"{place} is of type {name}, which is not JSON: pass {FORMS}{instead}")


def _items(value: Mapping[Any, Any], place: str, depth: int) -> Iterator[tuple[str, Any]]:
    for key, item in value.items():
        if not isinstance(key, str):
            raise BadInputError(f"{place} has the key {shown(key)}, but JSON has only strings as keys")
        yield _text(str.__str__(key), f"a key of {place}"), plain(item, f"{place}[{key!r:.64}]", depth + 1)


def _text(text: str, place: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise BadInputError(f"{place} is a string that UTF-8 cannot hold (half of a surrogate pair)") from None
    return text
