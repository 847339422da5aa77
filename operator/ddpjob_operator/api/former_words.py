"""Fields and values of former versions of the type, with their replacements.

A file with such a field or value is refused, and the message names the replacement. The type itself no longer
contains them. The page on versions has the same table.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from .contract import API_VERSION, FORMER_API_VERSION
from .problems import Path, Problem


def _anything(_value: Any) -> bool:
    return True


def _former_version(value: Any) -> bool:
    return bool(value == FORMER_API_VERSION)


def _auto(value: Any) -> bool:
    return isinstance(value, str) and value.lower() == "auto"


def _no_mapping(value: Any) -> bool:
    return not isinstance(value, dict)


@dataclass(frozen=True, slots=True)
class FormerWord:
    """A field or value of a former version.

    path   the field; `[]` after a list means each of its items
    hint   the message for a user who writes the former field or value
    new    the replacement, as shown on the page on versions
    value  the former value, as shown on that page; empty: any value
    found  returns whether a value has the former form
    """

    path: str
    hint: str
    new: str
    value: str = ""
    found: Callable[[Any], bool] = _anything

    @property
    def old(self) -> str:
        """The former field with its value, as shown on the page on versions."""
        return f"{self.path}: {self.value}" if self.value else self.path


def _moved(old: str, new: str) -> FormerWord:
    return FormerWord(old, f"is now {new}", f"`{new}`")


FORMER_WORDS: tuple[FormerWord, ...] = (
    FormerWord(
        "apiVersion",
        f"is now {API_VERSION}",
        f"`apiVersion: {API_VERSION}`",
        FORMER_API_VERSION,
        _former_version,
    ),
    *(_moved(f"spec.{name}", f"spec.network.{name}") for name in ("masterPort", "statusPort", "controlPort")),
    _moved("spec.waitForMaster", "spec.network.waitForMaster"),
    _moved("spec.networkPolicy", "spec.network.policy"),
    FormerWord(
        "spec.procsPerNode",
        "Auto is no longer a value; leave the field out for one process per GPU",
        "no `spec.procsPerNode`",
        "Auto",
        _auto,
    ),
    FormerWord(
        "spec.checkpoint.everySeconds",
        "Auto is no longer a value; write interval: Auto instead",
        "`spec.checkpoint.interval: Auto`",
        "Auto",
        _auto,
    ),
    FormerWord(
        "spec.restart.rules[].exitCodes",
        "is now a mapping, such as {operator: In, values: [3, 64]}; a range is now the list of its values",
        "`spec.restart.rules[].exitCodes: {operator: In, values: [3, 64, 65]}`",
        "[3, 64-65]",
        _no_mapping,
    ),
)


def former_words(document: Any) -> Iterator[Problem]:
    """Yields a problem for each field or value of a former version in a document."""
    for word in FORMER_WORDS:
        for path, value in _values(document, tuple(word.path.replace("[]", ".[]").split("."))):
            if word.found(value):
                yield Problem(path, word.hint)


def _values(value: Any, way: tuple[str, ...], path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Yields each value that `way` leads to, with its path. If `way` leads through lists, there may be several."""
    if not way:
        yield path, value
        return
    name, *rest = way
    if name == "[]" and isinstance(value, list):
        for index, item in enumerate(value):
            yield from _values(item, tuple(rest), (*path, index))
    elif isinstance(value, dict) and name in value:
        yield from _values(value[name], tuple(rest), (*path, name))
