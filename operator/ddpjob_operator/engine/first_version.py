"""What supervisors say in the first version of their documents, as the second has it.

There `rank` is a node's number, and `process` a rank. Images are upgraded apart from the operator; nothing else in it
knows the old names.
"""

from collections.abc import Mapping
from typing import Any

from .foreign import count_of

WHO = {"rank": "node", "process": "rank"}
INCIDENT = {**WHO, "consequenceRanks": "consequenceNodes"}

NAMES: dict[str, dict[str, str]] = {
    "incidents": INCIDENT,
    "progress": {"slowestRank": "slowestNode"},
    "stall": WHO,
    "stragglers": WHO,
    "incident": INCIDENT,
}
"""What fields are called now, by where they stand: on the status page, and last in a failure report."""


def in_second(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """A status page or a failure report in the second version. One that names no version is of the first."""
    if (count_of(document.get("version")) or 1) > 1:
        return document
    return {
        **document,
        **{place: _renamed(document[place], names) for place, names in NAMES.items() if place in document},
    }


def _renamed(value: Any, names: Mapping[str, str]) -> Any:
    match value:
        case [*parts]:
            return [_renamed(part, names) for part in parts]
        case Mapping():
            return {names.get(name, name): said for name, said in value.items()}
    return value
