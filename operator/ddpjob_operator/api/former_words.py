"""Words of former versions of the type, and what stands in their place: a file that has one is refused with it.

The type itself does not know them. The page on versions has the same table.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from .contract import API_VERSION, FORMER_VERSION, GROUP
from .problems import Path, Problem

FORMER_API_VERSION = f"{GROUP}/{FORMER_VERSION}"


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
    """What was written in a former version.

    path   the field; `[]` after a list stands for each of its items
    hint   what the person who wrote it is told
    new    what is written now, in the page on versions
    value  what stood there, in that page; empty: any value
    found  whether a value was of that form
    """

    path: str
    hint: str
    new: str
    value: str = ""
    found: Callable[[Any], bool] = _anything

    @property
    def old(self) -> str:
        """What was written then, in that page."""
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
    """The words of a former version that a document has."""
    for word in FORMER_WORDS:
        for path, value in _values(document, tuple(word.path.replace("[]", ".[]").split("."))):
            if word.found(value):
                yield Problem(path, word.hint)


def _values(value: Any, way: tuple[str, ...], path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """What stands where a path leads, which may be several places or none."""
    if not way:
        yield path, value
        return
    name, *rest = way
    if name == "[]" and isinstance(value, list):
        for index, item in enumerate(value):
            yield from _values(item, tuple(rest), (*path, index))
    elif isinstance(value, dict) and name in value:
        yield from _values(value[name], tuple(rest), (*path, name))
