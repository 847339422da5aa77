"""Every field of a DDPJob's spec that has a value, and the least and greatest values that its schema allows."""

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from ddpjob_operator.api.crd import crd

Schema = dict[str, Any]

FOREIGN = ("template", "checkpoint.volume")
"""Fields of Kubernetes' own types. Kubernetes defines what they mean, and most of them concern only the pod."""

LARGEST = 2**63 - 1
"""The largest number that the API server accepts if the schema does not limit it."""
LARGEST_SHORT = 2**31 - 1
"""The largest number that the API server accepts if the schema's format is int32."""


@dataclass(frozen=True)
class Leaf:
    """A field with a value of its own.

    path      its path in spec, with `[]` for each item of a list: `restart.rules[].action`
    required  whether the field is required if its parent exists
    """

    path: str
    schema: Schema
    required: bool

    @property
    def foreign(self) -> bool:
        """Whether Kubernetes, not DDPJob, defines the field."""
        return self.path.startswith(FOREIGN)


def leaves() -> list[Leaf]:
    """All leaves, in the order of the schema."""
    return list(_leaves("", spec_schema(), required=True))


@cache
def spec_schema() -> Schema:
    """The schema of `spec`, as the API server has it.

    (Creating it again for each of 1,100 fields would take 10 s.)
    """
    schema: Schema = crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    return schema


def _leaves(path: str, schema: Schema, *, required: bool) -> Iterator[Leaf]:
    items = schema.get("items", {})
    # This includes objects without properties, which are choices: only their presence matters.
    if not schema.get("properties"):
        yield Leaf(path, schema, required)
    if "properties" in items:
        yield from _leaves(f"{path}[]", items, required=True)
    for name, field in schema.get("properties", {}).items():
        below = f"{path}.{name}" if path else name
        yield from _leaves(below, field, required=name in schema.get("required", ()))


def least(schema: Schema) -> Any:
    """The smallest value that the schema allows; for an enum, the first word."""
    if "enum" in schema:
        return schema["enum"][0]
    if schema.get("type") == "array":
        return [least(schema["items"])] * schema.get("minItems", 0)
    by_type = {"integer": schema.get("minimum", -_largest(schema) - 1), "number": 0.0, "boolean": False, "string": ""}
    return _struct(schema, least) if schema.get("type") == "object" else by_type.get(schema.get("type", ""), 0)


def greatest(schema: Schema) -> Any:
    """The largest value that the schema allows; for an enum, the last word."""
    if "enum" in schema:
        return schema["enum"][-1]
    if schema.get("type") == "array":
        return [greatest(schema["items"])] * min(schema.get("maxItems", 1), 64)
    text = "a" * min(schema.get("maxLength", 64), 1024)
    by_type = {"integer": schema.get("maximum", _largest(schema)), "number": 1e300, "boolean": True, "string": text}
    return _struct(schema, greatest) if schema.get("type") == "object" else by_type.get(schema.get("type", ""), text)


def _largest(schema: Schema) -> int:
    return LARGEST_SHORT if schema.get("format") == "int32" else LARGEST


def _struct(schema: Schema, of: Any) -> dict[str, Any]:
    """An object that has all required fields."""
    fields = schema.get("properties", {})
    return {name: of(fields[name]) for name in schema.get("required", ()) if name in fields}


def wrong(schema: Schema) -> Iterator[tuple[Any, str]]:
    """Values that the schema refuses without any further rule, and what the refusal says would be right."""
    kind = schema.get("type", "integer,string")
    of_type = f"must be of type {kind}"
    if "enum" in schema:
        yield "Other", "supported values: " + ", ".join(f'"{word}"' for word in schema["enum"])
    if "minimum" in schema:
        yield schema["minimum"] - 1, f"should be greater than or equal to {schema['minimum']}"
        yield schema["maximum"] + 1, f"should be less than or equal to {schema['maximum']}"
    if kind == "integer":
        of_format = f"must be of type {schema['format']}"
        yield from ((value, of_type) for value in ("two", []))
        yield from ((value, of_format) for value in (2.5, True, {}))
    if kind == "boolean":
        yield from ((value, of_type) for value in ("yes", 1))
    if kind == "string":
        yield from ((value, of_type) for value in (5, True, ["a"]))
    if kind == "integer,string":
        yield from ((value, of_type) for value in (2.5, True, []))
    if kind == "object":
        yield from ((value, of_type) for value in ("a", 1, []))
    if kind == "array":
        yield from ((value, of_type) for value in ("a", 1))
        yield [least(schema["items"])] * (schema["maxItems"] + 1), f"must have at most {schema['maxItems']} items"
        if "minItems" in schema:
            yield [], f"should have at least {schema['minItems']} items"
    if "maxLength" in schema:
        yield "a" * (schema["maxLength"] + 1), f"may not be more than {schema['maxLength']}"


def put(spec: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """The spec with a value at a path. Missing parts of the path are created, as small as their schema allows."""
    result = copy.deepcopy(spec)
    place, schema = result, spec_schema()
    *way, last = path.split(".")
    for part in way:
        name, in_list = part.removesuffix("[]"), part.endswith("[]")
        schema = schema["properties"][name]
        if in_list:
            schema = schema["items"]
            place = (place.setdefault(name, []) or _filled(place[name], schema))[0]
        else:
            place = place.setdefault(name, _struct(schema, least))
    place[last] = value
    return result


def _filled(items: list[Any], schema: Schema) -> list[Any]:
    items.append(_struct(schema, least))
    return items


def take(spec: dict[str, Any], path: str) -> dict[str, Any]:
    """The spec without the field at a path."""
    result = put(spec, path, None)
    *way, last = path.split(".")
    place = result
    for part in way:
        place = place[part.removesuffix("[]")]
        place = place[0] if part.endswith("[]") else place  # type: ignore[index]
    del place[last]
    return result


def found(spec: Any, path: str) -> Any:
    """The value at a path; None if there is none."""
    for part in path.split("."):
        name = part.removesuffix("[]")
        spec = spec.get(name) if isinstance(spec, dict) else None
        if part.endswith("[]"):
            spec = spec[0] if spec else None
    return spec
