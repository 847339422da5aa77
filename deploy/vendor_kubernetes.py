"""Writes definitions.json of `api/kubernetes` from the OpenAPI document of a Kubernetes release.

The document is `api/openapi-spec/v3/api__v1_openapi.json` of the Go module k8s.io/kubernetes;
`make vendor-kubernetes` gets it and calls this.
"""

import json
import re
import sys
from pathlib import Path
from typing import Any

TARGET = Path(__file__).parents[1] / "operator/ddpjob_operator/api/kubernetes/definitions.json"
ROOT = "io.k8s.api.core.v1.PodTemplateSpec"
KEPT = (
    "type",
    "format",
    "description",
    "properties",
    "items",
    "additionalProperties",
    "required",
    "default",
    "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-map-type",
)
INT_OR_STRING = ("Quantity", "IntOrString")
"""A number with a fraction (`cpu: 0.5`) must be quoted: the schema of a CRD has no other form for these two."""
TEMPLATES = {"PodTemplateSpec": "the pods", "PersistentVolumeClaimTemplate": "the claim"}
"""Of their metadata only labels and annotations count, and the rest would be of any form and depth."""
DESCRIPTION_LENGTH = 200


def main(version: str, source: str) -> None:
    """Writes the definitions that a pod template reaches, each without what only a server needs."""
    schemas: dict[str, Any] = json.loads(Path(source).read_text(encoding="utf-8"))["components"]["schemas"]
    definitions = {_short(name): _closed(_trimmed(schemas[name])) for name in sorted(_reachable(schemas, ROOT))}
    for name in INT_OR_STRING:
        definitions[name] = {
            "description": definitions[name]["description"],
            "anyOf": [{"type": "integer"}, {"type": "string"}],
        }
    for kind, what in TEMPLATES.items():
        definitions[kind]["properties"]["metadata"] = _template_metadata(definitions["ObjectMeta"], what)
    volume = definitions["Volume"]
    definitions["VolumeSource"] = {
        **{key: value for key, value in volume.items() if key != "required"},
        "description": "Where a volume's data is: exactly one of the fields.",
        "properties": {name: value for name, value in volume["properties"].items() if name != "name"},
        "minProperties": 1,
        "maxProperties": 1,
    }
    document = {
        "source": f"Kubernetes {version}, Apache-2.0, https://github.com/kubernetes/kubernetes",
        "definitions": definitions,
    }
    TARGET.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _template_metadata(meta: dict[str, Any], what: str) -> dict[str, Any]:
    """What of a template's metadata reaches what is made of it."""
    properties = {name: meta["properties"][name] for name in ("labels", "annotations")}
    return _closed({"type": "object", "description": f"Labels and annotations of {what}.", "properties": properties})


def _reachable(schemas: dict[str, Any], root: str) -> set[str]:
    found: set[str] = set()
    waiting = [root]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting.extend(re.findall(r'"#/components/schemas/([^"]+)"', json.dumps(schemas[name])))
    return found


def _short(name: str) -> str:
    return name.rsplit(".", 1)[-1]


def _trimmed(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema with its first sentence, its references by short name, and nothing that only servers read."""
    if "$ref" in schema:
        return {"$ref": f"#/$defs/{_short(schema['$ref'])}"}
    if "allOf" in schema:
        described = {"description": _first_sentence(schema["description"])} if "description" in schema else {}
        return described | _trimmed(schema["allOf"][0])
    return {key: _trimmed_value(key, schema[key]) for key in KEPT if key in schema}


def _trimmed_value(key: str, value: Any) -> Any:
    if key == "description":
        return _first_sentence(value)
    if key == "properties":
        return {name: _trimmed(child) for name, child in value.items()}
    return _trimmed(value) if isinstance(value, dict) and value else value


def _first_sentence(text: str) -> str:
    sentence = re.split(r"(?<!e\.g\.)(?<!i\.e\.)(?<=[.:])\s", text.strip(), maxsplit=1)[0].rstrip(":")
    return sentence if len(sentence) <= DESCRIPTION_LENGTH else sentence[: DESCRIPTION_LENGTH - 1] + "…"


def _closed(schema: dict[str, Any]) -> dict[str, Any]:
    """Unknown fields are typos."""
    return {**schema, "additionalProperties": False} if "properties" in schema else schema


if __name__ == "__main__":
    main(*sys.argv[1:])
