"""Jobs before and after the change of a field."""

from typing import Any

from tests.support.jobs import a_job

from .leaves import Leaf, greatest, least, put, take
from .table import FIELDS, FROM_SCHEMA, Change, Field


def before(field: Field, name: str = "digits") -> dict[str, Any]:
    """The job of two nodes in which a field is changed."""
    return a_job(name, annotations=dict(field.annotations), **field.job)


def changed(leaf: Leaf, change: Change, job: dict[str, Any]) -> dict[str, Any]:
    """The job after the change of one field, and of other fields that must change with it."""
    field = FIELDS[leaf.path]
    if change is Change.REMOVED:
        spec = take(job["spec"], leaf.path)
    else:
        spec = put(job["spec"], leaf.path, value(leaf, change))
    for path, other in field.beside.get(change, {}).items():
        spec = put(spec, path, other)
    return job | {"spec": spec}


def value(leaf: Leaf, change: Change) -> Any:
    """The least or the greatest value of a field."""
    field = FIELDS[leaf.path]
    told, by_schema = (field.least, least) if change is Change.LEAST else (field.greatest, greatest)
    return by_schema(leaf.schema) if told is FROM_SCHEMA else told
