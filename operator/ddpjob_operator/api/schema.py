"""The JSON Schema of a DDPJob, for completion and checks in editors, and for validation.

The schema is generated from the types in `spec` and Kubernetes' own schema of a pod template, so it always matches
both.
"""

import math
from functools import cache
from typing import Any

from .contract import API_VERSION, KIND, MAX_NAME_LENGTH
from .default_settings import MOST_ENTRIES, MOUNT_FIELDS, DefaultsEntry
from .kubernetes import (
    LABEL_SELECTOR,
    OBJECT_META,
    POD_SPEC,
    POD_TEMPLATE,
    VOLUME,
    VOLUME_MOUNT,
    VOLUME_SOURCE,
    definitions,
)
from .numbers import MOST_SECONDS
from .spec import DDPJobSpec
from .status import DDPJobStatus

INT32_MAX = 2**31 - 1

MOUNTED_VOLUME = "MountedVolume"
KINDS_OF_DEFAULTS = {
    "env": "EnvVar",
    "imagePullSecrets": "LocalObjectReference",
    "tolerations": "Toleration",
    "volumes": MOUNTED_VOLUME,
}
"""The lists of a `DefaultsEntry`, with the types of their items."""

NAME_PATTERN = "^[a-z]([-a-z0-9]*[a-z0-9])?$"
"""A DNS label that starts with a letter, because a Service is named after the job (RFC 1035)."""
NAME_FORM = (
    f"at most {MAX_NAME_LENGTH} lower-case letters, digits and dashes, "
    "starting with a letter and not ending with a dash"
)
"""NAME_PATTERN in words, with the maximum length."""


@cache
def job_schema() -> dict[str, Any]:
    """Returns the schema of a DDPJob document, as JSON Schema draft 2020-12."""
    spec = _as_kubernetes(DDPJobSpec.model_json_schema(by_alias=True))
    ours: dict[str, Any] = spec.pop("$defs")
    _refer(spec["properties"]["template"], POD_TEMPLATE)
    _refer(ours["Checkpoint"]["properties"]["volume"], VOLUME_SOURCE)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": KIND,
        "description": DDPJobSpec.__doc__,
        "type": "object",
        "required": ["apiVersion", "kind", "metadata", "spec"],
        "additionalProperties": False,
        "properties": {
            "apiVersion": {"const": API_VERSION},
            "kind": {"const": KIND},
            "metadata": _metadata(),
            "spec": spec,
            "status": {
                "type": "object",
                "description": "Written by the operator; ignored in what you apply.",
            },
        },
        "$defs": {**ours, **definitions(), POD_SPEC: _pod_spec()},
    }


@cache
def defaults_schema() -> dict[str, Any]:
    """Returns the schema of the organisation's defaults, as JSON Schema draft 2020-12: a list of `DefaultsEntry`."""
    entry = _as_kubernetes(DefaultsEntry.model_json_schema(by_alias=True))
    ours: dict[str, Any] = entry.pop("$defs")
    fields = entry["properties"]
    for name, kind in KINDS_OF_DEFAULTS.items():
        fields[name]["items"] = {"$ref": f"#/$defs/{kind}"}
    _refer(fields["namespaceSelector"], LABEL_SELECTOR)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "array",
        "maxItems": MOST_ENTRIES,
        "items": entry,
        "$defs": {**ours, **definitions(), MOUNTED_VOLUME: _mounted_volume()},
    }


def _mounted_volume() -> dict[str, Any]:
    """Returns Kubernetes' schema of a volume, with fields of a mount."""
    volume, mount = definitions()[VOLUME], definitions()[VOLUME_MOUNT]["properties"]
    fields = {name: mount[name] for name in MOUNT_FIELDS}
    return {**volume, "properties": volume["properties"] | fields, "required": ["name", "mountPath"]}


@cache
def status_schema() -> dict[str, Any]:
    """Returns the schema of a DDPJob's status."""
    schema: dict[str, Any] = _as_kubernetes(DDPJobStatus.model_json_schema(by_alias=True))
    return schema


def _pod_spec() -> dict[str, Any]:
    """Returns Kubernetes' schema of a pod spec, but limits the grace period, because times are calculated from it."""
    pod = definitions()[POD_SPEC]
    grace = pod["properties"]["terminationGracePeriodSeconds"] | {"minimum": 0, "maximum": MOST_SECONDS}
    return {**pod, "properties": pod["properties"] | {"terminationGracePeriodSeconds": grace}}


def _metadata() -> dict[str, Any]:
    meta = definitions()[OBJECT_META]
    name = {
        "type": "string",
        "pattern": NAME_PATTERN,
        "maxLength": MAX_NAME_LENGTH,
        "description": f"Name of the job: {NAME_FORM}. Pods and the Service are named after it.",
    }
    return {**meta, "properties": meta["properties"] | {"name": name}, "required": ["name"]}


def _refer(field: dict[str, Any], name: str) -> None:
    """Gives a field the Kubernetes type with this name, but keeps our description."""
    description = field["description"]
    field.clear()
    field |= {"description": description, "$ref": f"#/$defs/{name}"}


def _as_kubernetes(schema: Any) -> Any:
    """Converts the schema of one of our types to the style of Kubernetes' own schemas.

    Optional fields are absent instead of null, integers have a format, and nothing has a generated title.
    """
    if isinstance(schema, list):
        return [_as_kubernetes(item) for item in schema if item != {"type": "null"}]
    if not isinstance(schema, dict):
        return schema
    kept = {
        key: _as_kubernetes(value)
        for key, value in schema.items()
        if value is not None and not (key == "title" and isinstance(value, str))
    }
    if len(kept.get("anyOf", ())) == 1:
        kept |= kept.pop("anyOf")[0]
    if kept.get("type") == "integer":
        kept["format"] = "int32" if kept.get("maximum", math.inf) <= INT32_MAX else "int64"
    return kept
