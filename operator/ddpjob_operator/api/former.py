"""Jobs that a release with a former version of the type has begun.

The API server hands them out under today's version, without what the spec has no field for any more, and with values
of types that fields had then. Nothing converts them. Of what has finished, enough is read for it to stay finished.
What lives is marked. Whatever else stands in a status stays, for the release that wrote it.
"""

from typing import Any

from .contract import FORMER_VERSION
from .spec import CONTROLLER_NAME, DDPJobSpec
from .status import ConditionType

ENDS = {"Succeeded": ConditionType.COMPLETE}
"""What the condition is called that ended a job, and had another name."""
ENDED = frozenset({ConditionType.COMPLETE, ConditionType.FAILED})


def is_former(spec: dict[str, Any], status: dict[str, Any]) -> bool:
    """Whether the job was made under a former version of the type.

    A status of that version has no bookkeeping. If no operator has looked at the job, only the spec can tell: there
    `procsPerNode` was Auto unless its user gave a number.
    """
    if isinstance(spec.get("procsPerNode"), str):
        return True
    if spec.get("managedBy") not in {None, CONTROLLER_NAME}:
        return False  # Other controllers keep books of their own, if any.
    version = status.get("bookkeeping", {}).get("version", FORMER_VERSION)
    return version == FORMER_VERSION and int(status.get("observedGeneration", 0)) > 0


def as_read(spec: dict[str, Any], status: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The spec and the status of a former job as far as this version can read them."""
    untold = {} if "bookkeeping" in status else _untold(status)
    return _without_former_types(spec), status | untold


def _untold(status: dict[str, Any]) -> dict[str, Any]:
    """What is read of a status into which no operator of this version has written anything."""
    books = {"bookkeeping": {"version": ""}}
    conditions = [one | {"type": ENDS.get(one["type"], one["type"])} for one in status.get("conditions", [])]
    if not any(one["type"] in ENDED and one["status"] == "True" for one in conditions):
        return books
    ready = {"ready": status.get("ready", "")}
    return {"conditions": conditions, "incidents": status.get("history", []), "display": ready, **books}


def _without_former_types(spec: dict[str, Any]) -> dict[str, Any]:
    """The spec without fields that are gone or have another type now. None is needed: no such job starts again."""
    names = {str(field.alias) for field in DDPJobSpec.model_fields.values()}
    known = {name: value for name, value in spec.items() if name in names}
    if not isinstance(known.get("procsPerNode"), int):
        known.pop("procsPerNode", None)
    for part, field in (("checkpoint", "everySeconds"), ("restart", "rules")):
        if part in known:
            known[part] = {name: value for name, value in known[part].items() if name != field}
    return known
