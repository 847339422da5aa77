"""The CustomResourceDefinition: the type as the API server knows it.

Made from the same schema that editors and local mode use, in the form that an API server accepts ("structural":
everything in place, no references), with the rules that compare fields written in CEL.
"""

from collections.abc import Callable
from typing import Any

from .contract import API_VERSION, FORMER_VERSION, GROUP, KIND, MAX_CONTAINERS, MAX_ENV, VERSION
from .rules import FIXED, IS_FORMER, RULES, Rule
from .schema import job_schema, status_schema
from .status import UNSEEN

PLURAL = "ddpjobs"
MAX_VOLUMES = 64
MAX_VARIABLE_NAME = 256
MAX_RESOURCES = 64
MAX_QUANTITY = 32

TEMPLATE = "spec.template"
STATUS_IS_WRITTEN = (
    "has(self.status) && has(self.status.message) && (!has(oldSelf.status) || !has(oldSelf.status.message) || "
    "self.status.message != oldSelf.status.message)"
)
"""In CEL: only at the write of a status may one change, and a new one has another message as a rule. To compare two
specs takes longer than all else that a status costs, and there they cannot differ."""

COLUMNS = (
    ("State", ".status.state", "string", 0),
    ("Ready", ".status.display.ready", "string", 0),
    ("Progress", ".status.display.progress", "string", 0),
    ("ETA", ".status.display.eta", "string", 0),
    ("Restarts", ".status.restarts", "integer", 0),
    ("Age", ".metadata.creationTimestamp", "date", 0),
    ("Reason", ".status.reason", "string", 1),
    ("Cause", ".status.incidents[0].cause", "string", 1),
    ("Message", ".status.message", "string", 1),
)

SCALE = {
    "specReplicasPath": ".spec.nodes",
    "statusReplicasPath": ".status.nodes",
    "labelSelectorPath": ".status.selector",
}
"""For `kubectl scale` and for autoscalers."""

LEFT_OUT = {"anyOf", "$defs", "additionalProperties", "examples", "uniqueItems"}
"""Keywords of JSON Schema that a CRD does not have, or has in another form."""

KUBERNETES_OWN = ("template", "checkpoint.volume")
"""Fields of the spec whose type is one of Kubernetes'."""
RESOURCE_KINDS = ("requests", "limits")
ATOMIC = {"x-kubernetes-map-type": "atomic"}
"""Whoever applies it server-side has it as a whole."""


def crd() -> dict[str, Any]:
    """The CRD, as it is applied."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{PLURAL}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": KIND,
                "listKind": f"{KIND}List",
                "plural": PLURAL,
                "singular": KIND.lower(),
                "shortNames": ["ddp"],
            },
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}, "scale": SCALE},
                    "additionalPrinterColumns": [_column(*column) for column in COLUMNS],
                    "schema": {"openAPIV3Schema": _root()},
                },
                {
                    # Served for the garbage collector: pods that were made under it name it as their owner's. And for
                    # kubectl, which may know no other version for hours.
                    "name": FORMER_VERSION,
                    "served": True,
                    "storage": False,
                    "deprecated": True,
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": [_column(*column) for column in COLUMNS],
                    "schema": {"openAPIV3Schema": _unwritten()},
                },
            ],
        },
    }


def _unwritten() -> dict[str, Any]:
    """The schema of a version by which nobody can make a job any more, or change its spec or status.

    The metadata can be changed: the garbage collector removes its finalizers by the version that it knows.
    """
    old = "oldSelf.value()"
    status = f"(has(self.status) ? has({old}.status) && self.status == {old}.status : !has({old}.status))"
    refusal = {
        "rule": f"oldSelf.hasValue() && self.spec == {old}.spec && {status}",
        "message": f"{GROUP}/{FORMER_VERSION} is not written any more; write {API_VERSION}",
        "optionalOldSelf": True,
    }
    part = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "type": "object",
        "required": ["spec"],
        "properties": {"spec": part, "status": part},
        "x-kubernetes-validations": [refusal],
    }


def _column(name: str, path: str, kind: str, priority: int) -> dict[str, Any]:
    return {"name": name, "jsonPath": path, "type": kind} | ({"priority": priority} if priority else {})


def _root() -> dict[str, Any]:
    document = job_schema()
    spec = structural(document["properties"]["spec"], document["$defs"])
    _bound(spec)
    # `kubectl explain pod` has Kubernetes' own words: with them the CRD is as large as two.
    for path in KUBERNETES_OWN:
        field = _at(spec, path)
        field |= {"description": field["description"], **_without(field, _is_description)}
    # Otherwise the API server takes stock, at each write of anything, of who has set which field of the template.
    spec["properties"]["template"] |= ATOMIC
    said = status_schema()
    root = {
        "type": "object",
        "description": document["description"],
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": spec,
            "status": _without(structural(said, said["$defs"]), _is_default) | ATOMIC | {"default": UNSEEN},
        },
    }
    _rules(root)
    return root


def structural(schema: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    """The schema with its references resolved, in the keywords that an API server knows."""
    if "$ref" in schema:
        target = definitions[schema["$ref"].rsplit("/", 1)[-1]]
        said = {key: value for key, value in schema.items() if key != "$ref"}
        return structural({**target, **said}, definitions)
    result = {key: value for key, value in schema.items() if key not in LEFT_OUT}
    if schema.get("additionalProperties") is True:
        result["x-kubernetes-preserve-unknown-fields"] = True
    if "anyOf" in schema:  # Only in Kubernetes' own types.
        result["x-kubernetes-int-or-string"] = True
    if "properties" in schema:
        result["properties"] = {name: structural(one, definitions) for name, one in schema["properties"].items()}
    elif isinstance(schema.get("additionalProperties"), dict):
        result["additionalProperties"] = structural(schema["additionalProperties"], definitions)
    if "items" in schema:
        result["items"] = structural(schema["items"], definitions)
    return result


def _without(schema: Any, left_out: Callable[[str, Any], bool]) -> Any:
    """A schema without some keywords, by their names and values."""
    if isinstance(schema, list):
        return [_without(one, left_out) for one in schema]
    if not isinstance(schema, dict):
        return schema
    return {key: _without(one, left_out) for key, one in schema.items() if not left_out(key, one)}


def _is_default(keyword: str, value: Any) -> bool:
    """Whether it is one, of a status: whoever reads it knows them. A field of that name has a schema."""
    return keyword == "default" and not (isinstance(value, dict) and "type" in value)


def _is_description(keyword: str, value: Any) -> bool:
    """Whether it says what a field is for; a field of that name has a schema."""
    return keyword == "description" and isinstance(value, str)


def _bound(spec: dict[str, Any]) -> None:
    """Limits without which the API server refuses rules over lists as too costly."""
    spec["properties"]["template"]["required"] = ["spec"]  # Otherwise no rule would apply without it.
    template = spec["properties"]["template"]["properties"]
    for kind in ("labels", "annotations"):
        template["metadata"]["properties"][kind]["maxProperties"] = 256
    pod = template["spec"]["properties"]
    pod["volumes"]["maxItems"] = MAX_VOLUMES
    pod["volumes"]["items"]["properties"]["name"]["maxLength"] = 63
    for kind in ("containers", "initContainers"):
        pod[kind]["maxItems"] = MAX_CONTAINERS
        container = pod[kind]["items"]["properties"]
        container["name"]["maxLength"] = 63
        container["env"]["maxItems"] = MAX_ENV
        container["env"]["items"]["properties"]["name"]["maxLength"] = MAX_VARIABLE_NAME
    for resources in RESOURCE_KINDS:
        amounts = pod["containers"]["items"]["properties"]["resources"]["properties"][resources]
        amounts["maxProperties"] = MAX_RESOURCES
        amounts["additionalProperties"]["maxLength"] = MAX_QUANTITY


def _rules(root: dict[str, Any]) -> None:
    """Adds the rules that compare fields, each at a place from which CEL sees everything it compares."""
    for rule in RULES:
        if rule.cel:
            said = {"rule": rule.cel, "message": rule.said} | _field_path(rule)
            _at(root, rule.at).setdefault("x-kubernetes-validations", []).append(said)
    for fixed in FIXED:
        unless = [STATUS_IS_WRITTEN, *[IS_FORMER] * fixed.while_suspended]
        said = {"rule": " || ".join([*unless, fixed.cel(fixed.path)]), "message": fixed.said}
        root["x-kubernetes-validations"].append(said | {"fieldPath": f".{fixed.path}"})


def _field_path(rule: Rule) -> dict[str, str]:
    """Where the API server says that the rule is broken, seen from where it stands."""
    path = f".{rule.path}".removeprefix(f".{rule.at}" * bool(rule.at)).removesuffix("[]")
    return {"fieldPath": path} if path and not path.startswith(".metadata") else {}  # Which has no fields of its own.


def _at(schema: dict[str, Any], path: str) -> dict[str, Any]:
    """The schema of a field below; `[]` after a list leads to its items."""
    for name in path.replace("[]", ".items").split(".") if path else ():
        schema = schema["items"] if name == "items" else schema["properties"][name]
    return schema
