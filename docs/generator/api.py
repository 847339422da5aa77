"""Sections of docs/reference/ddpjob.md."""

import json
from collections.abc import Iterator
from typing import Any

from ddpjob_operator.api import DDPJobSpec, DDPJobStatus
from ddpjob_operator.api.default_settings import DefaultsEntry
from ddpjob_operator.api.rules import FIXED, RULES, TOGETHER
from ddpjob_operator.api.schema import job_schema

from .markdown import code, table

Schema = dict[str, Any]

NOT_CHECKED = "not checked"
STOPS_FIRST = "stops the run first, then goes on with the change"

TYPES = {
    "integer": "whole number",
    "number": "number",
    "boolean": "true or false",
    "array": "list",
    "object": "mapping",
}


def name() -> str:
    """Describes what a job's name must look like."""
    field = job_schema()["properties"]["metadata"]["properties"]["name"]
    return f"{field['description']}\n"


def spec() -> str:
    """Every field of `spec`."""
    schema = DDPJobSpec.model_json_schema()
    return table(("Field", "Type", "Default", "Meaning"), _fields(schema, schema["$defs"], "spec"))


def status() -> str:
    """Every field of `status`."""
    schema = DDPJobStatus.model_json_schema(mode="serialization")
    rows = _fields(schema, schema["$defs"], "status")
    return table(("Field", "Type", "Meaning"), ((path, kind, meaning) for path, kind, _, meaning in rows))


def defaults() -> str:
    """Every field of an entry of the organisation's defaults."""
    schema = DefaultsEntry.model_json_schema()
    fields = _fields(schema, schema["$defs"], "")
    rows = ((path.replace("`.", "`"), kind, meaning) for path, kind, _, meaning in fields if "[]." not in path)
    return table(("Field", "Type", "Meaning"), rows)


def rules() -> str:
    """The rules that a job must follow beyond the types and ranges of its fields."""
    rows = ((code(rule.path), rule.refuses, rule.said, rule.beside or "the same") for rule in RULES)
    return table(("Where", "What is refused", "Message", "On a cluster"), rows)


def fixed() -> str:
    """The rules for changes of a job."""
    rows = [(code(rule.path), rule.said, STOPS_FIRST if rule.local else NOT_CHECKED) for rule in FIXED]
    together = [(code(pair.path), pair.said, NOT_CHECKED) for pair in TOGETHER]
    return table(("Field", "Message for a change", "`ddpjob run`"), rows + together)


def _fields(schema: Schema, known: dict[str, Schema], path: str) -> Iterator[tuple[str, str, str, str]]:
    """The path, type, default and meaning of each field, followed by those of the fields inside it."""
    for key, field in schema["properties"].items():
        options = [_resolved(option, known) for option in field.get("anyOf", [field]) if option != {"type": "null"}]
        inner = _resolved(options[0].get("items", options[0]), known)
        here = f"{path}.{key}{'[]' if 'items' in options[0] else ''}"
        kind = " or ".join(_type(option) for option in options)
        default = "required" if key in schema.get("required", ()) else _default(field.get("default"))
        yield code(here), kind, default, field.get("description", "")
        if "properties" in inner:
            yield from _fields(inner, known, here)


def _resolved(field: Schema, known: dict[str, Schema]) -> Schema:
    return known[field["$ref"].removeprefix("#/$defs/")] if "$ref" in field else field


def _type(field: Schema) -> str:
    if words := field.get("enum", field.get("examples")):
        return ", ".join([*map(code, words), *(["…"] if "examples" in field else [])])
    if "const" in field:
        return code(field["const"])
    if "minimum" in field:
        return f"{field['minimum']} to {field['maximum']}"
    if field.get("format") == "date-time":
        return "time"
    if "maxLength" in field:
        return f"text of at most {field['maxLength']} characters"
    return TYPES.get(field["type"], "text")


def _default(value: object) -> str:
    return "" if value is None or isinstance(value, dict) else code(json.dumps(value).strip('"'))
