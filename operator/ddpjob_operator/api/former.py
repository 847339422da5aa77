"""Reads jobs that were started by a release with a former version of the type.

The API server serves them under the present version without converting them. It drops fields that the spec no longer
has, and other fields may have values of their former types. A finished job is read just far enough to stay finished.
A job that has not finished is marked as former. Everything else in a status is kept for the release that wrote it.
"""

from typing import Any

from .contract import FORMER_VERSION
from .spec import CONTROLLER_NAME, DDPJobSpec
from .status import ConditionType

ENDS = {"Succeeded": ConditionType.COMPLETE}
"""Renamed conditions that end a job: the present name, by the former name."""
ENDED = frozenset({ConditionType.COMPLETE, ConditionType.FAILED})


def is_former(spec: dict[str, Any], status: dict[str, Any]) -> bool:
    """Whether the job was created under a former version of the type.

    A status of that version has no bookkeeping. If no operator has written a status yet, only the spec can show the
    version: `procsPerNode` was Auto unless the user gave a number.
    """
    if isinstance(spec.get("procsPerNode"), str):
        return True
    if spec.get("managedBy") not in {None, CONTROLLER_NAME}:
        return False  # Another controller does not write our bookkeeping.
    version = status.get("bookkeeping", {}).get("version", FORMER_VERSION)
    return version == FORMER_VERSION and int(status.get("observedGeneration", 0)) > 0


def as_read(spec: dict[str, Any], status: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the parts of a former job's spec and status that this version can read."""
    translated = {} if "bookkeeping" in status else _untold(status)
    return _without_former_types(spec), status | translated


def _untold(status: dict[str, Any]) -> dict[str, Any]:
    """Translates the fields of a status that no operator of this version has written yet."""
    books = {"bookkeeping": {"version": ""}}
    conditions = [
        condition | {"type": ENDS.get(condition["type"], condition["type"])}
        for condition in status.get("conditions", [])
    ]
    if not any(condition["type"] in ENDED and condition["status"] == "True" for condition in conditions):
        return books
    ready = {"ready": status.get("ready", "")}
    return {"conditions": conditions, "incidents": status.get("history", []), "display": ready, **books}


def _without_former_types(spec: dict[str, Any]) -> dict[str, Any]:
    """Removes fields that no longer exist, or now have another type, from the spec of a former job."""
    names = {str(field.alias) for field in DDPJobSpec.model_fields.values()}
    known = {name: value for name, value in spec.items() if name in names}
    if not isinstance(known.get("procsPerNode"), int):
        known.pop("procsPerNode", None)
    for part, field in (("checkpoint", "everySeconds"), ("restart", "rules")):
        if part in known:
            known[part] = {name: value for name, value in known[part].items() if name != field}
    return known
