"""Kubernetes' own schema of a pod template, so that typos in a template are found before it reaches a cluster."""

import json
from functools import cache
from importlib.resources import files
from typing import Any

POD_TEMPLATE = "PodTemplateSpec"
POD_SPEC = "PodSpec"
VOLUME_SOURCE = "VolumeSource"
OBJECT_META = "ObjectMeta"
VOLUME = "Volume"
VOLUME_MOUNT = "VolumeMount"
LABEL_SELECTOR = "LabelSelector"


@cache
def definitions() -> dict[str, Any]:
    """Returns the JSON Schema definitions by short name. Every `$ref` in them is `#/$defs/<short name>`."""
    text = files(__package__).joinpath("definitions.json").read_text(encoding="utf-8")
    vendored: dict[str, Any] = json.loads(text)["definitions"]
    return vendored
