"""Jobs that a release with a former version of the type has begun.

The API server hands them out under today's version, without what the spec has no field for any more, and with values
of types that fields had then. Nothing converts them. Of what has finished, enough is read for it to stay finished.
What lives is marked, and its status is kept as it is for the release that wrote it.
"""

from typing import Any

from .contract import FORMER_VERSION
from .status import ConditionType, DDPJobStatus

ENDS = {"Succeeded": ConditionType.COMPLETE}
"""What the condition is called that ended a job, and had another name."""
ENDED = frozenset({ConditionType.COMPLETE, ConditionType.FAILED})
UNTOLD = {"version": ""}
"""The books of a job of which no operator of this version has written anything yet."""


def is_former(status: dict[str, Any]) -> bool:
    """Whether a release with a former version of the type began the job: its operators kept no such books."""
    version = status.get("bookkeeping", {}).get("version", FORMER_VERSION)
    return version == FORMER_VERSION and int(status.get("observedGeneration", 0)) > 0


def as_read(spec: dict[str, Any], status: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The spec and the status of a former job as far as this version can read them."""
    conditions = status.get("conditions", [])
    if any(ENDS.get(one["type"], one["type"]) in ENDED and one["status"] == "True" for one in conditions):
        known = {str(field.alias) for field in DDPJobStatus.model_fields.values()}
        status = {name: value for name, value in status.items() if name in known}
        status["conditions"] = [one | {"type": ENDS.get(one["type"], one["type"])} for one in conditions]
    return _without_former_types(spec), {"bookkeeping": UNTOLD, **status}


def _without_former_types(spec: dict[str, Any]) -> dict[str, Any]:
    """The spec without what has another type now. None of it is needed: no such job starts again."""
    known = {name: value for name, value in spec.items() if name != "procsPerNode" or isinstance(value, int)}
    if isinstance(known.get("checkpoint"), dict):
        known["checkpoint"] = {name: value for name, value in known["checkpoint"].items() if name != "everySeconds"}
    if isinstance(known.get("restart"), dict):
        known["restart"] = {name: value for name, value in known["restart"].items() if name != "rules"}
    return known
