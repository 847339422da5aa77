"""The CustomResourceDefinition, which is the type in the form that the API server needs.

It is made from the same schema that editors and local mode use. The API server accepts only a "structural" schema,
which has no references. Rules that compare fields are added in CEL.
"""

from collections.abc import Callable
from typing import Any

from .contract import API_VERSION, FORMER_VERSION, GROUP, KIND, MAX_CONTAINERS, MAX_ENV, VERSION
from .rules import FIXED, IS_FORMER, RULES, TOGETHER, Rule
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
"""A CEL expression: true if the update changes the status, which nearly always has a new message then. Such an update
cannot change the spec, so the specs need not be compared. (The comparison would cost more than all other checks.)"""

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
"""The scale subresource, for `kubectl scale` and autoscalers."""

LEFT_OUT = {"anyOf", "$defs", "additionalProperties", "examples", "uniqueItems"}
"""Keywords of JSON Schema that a CRD lacks or expresses differently."""

KUBERNETES_OWN = ("template", "checkpoint.volume")
"""The fields of the spec whose types are Kubernetes' own."""
RESOURCE_KINDS = ("requests", "limits")
ATOMIC = {"x-kubernetes-map-type": "atomic"}
"""With this keyword, server-side apply assigns the whole map to one field manager."""


def crd() -> dict[str, Any]:
    """Returns the CRD as a document to apply."""
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
                    # This version is served for two reasons. The ownerReferences of older pods name it, and the
                    # garbage collector reads the job in the version named there. And for hours, kubectl may have only
                    # this version in its discovery cache.
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
    """Returns the schema of the former version, which forbids creating jobs and changing their spec or status.

    The metadata can still be changed: a garbage collector that knows only this version has to remove finalizers.
    """
    old = "oldSelf.value()"
    status = f"(has(self.status) ? has({old}.status) && self.status == {old}.status : !has({old}.status))"
    refusal = {
        "rule": f"oldSelf.hasValue() && self.spec == {old}.spec && {status}",
        "message": f"jobs of {GROUP}/{FORMER_VERSION} can no longer be created or changed; use {API_VERSION}",
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
    # The descriptions of Kubernetes' own fields would double the CRD's size. `kubectl explain pod` shows them.
    for path in KUBERNETES_OWN:
        field = _at(spec, path)
        field |= {"description": field["description"], **_without(field, _is_description)}
    # Without ATOMIC, the API server would track at each write which client has set which field of the template.
    spec["properties"]["template"] |= ATOMIC
    status = status_schema()  # Its defaults are removed below, because the programs that read a status know them.
    root = {
        "type": "object",
        "description": document["description"],
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": spec,
            "status": _without(structural(status, status["$defs"]), _is_default) | ATOMIC | {"default": UNSEEN},
        },
    }
    _rules(root)
    return root


def structural(schema: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    """Returns the schema with its references resolved, in the keywords that the API server supports."""
    if "$ref" in schema:
        target = definitions[schema["$ref"].rsplit("/", 1)[-1]]
        beside = {key: value for key, value in schema.items() if key != "$ref"}
        return structural({**target, **beside}, definitions)
    result = {key: value for key, value in schema.items() if key not in LEFT_OUT}
    if schema.get("additionalProperties") is True:
        result["x-kubernetes-preserve-unknown-fields"] = True
    if "anyOf" in schema:  # Only Kubernetes' own types use anyOf, always for a number or a string.
        result["x-kubernetes-int-or-string"] = True
    if "properties" in schema:
        result["properties"] = {name: structural(field, definitions) for name, field in schema["properties"].items()}
    elif isinstance(schema.get("additionalProperties"), dict):
        result["additionalProperties"] = structural(schema["additionalProperties"], definitions)
    if "items" in schema:
        result["items"] = structural(schema["items"], definitions)
    return result


def _without(schema: Any, left_out: Callable[[str, Any], bool]) -> Any:
    """Removes from a schema all keywords for whose name and value `left_out` returns true."""
    if isinstance(schema, list):
        return [_without(part, left_out) for part in schema]
    if not isinstance(schema, dict):
        return schema
    return {key: _without(part, left_out) for key, part in schema.items() if not left_out(key, part)}


def _is_default(keyword: str, value: Any) -> bool:
    """Whether this is the keyword `default` and not a field with that name, whose value would be a schema."""
    return keyword == "default" and not (isinstance(value, dict) and "type" in value)


def _is_description(keyword: str, value: Any) -> bool:
    """Whether this is the keyword `description` and not a field with that name, whose value would be a schema."""
    return keyword == "description" and isinstance(value, str)


def _bound(spec: dict[str, Any]) -> None:
    """Adds limits to lists, because without them the API server refuses rules over the lists as too costly."""
    # Without this, a template without a spec would be accepted, because no rule would apply to it.
    spec["properties"]["template"]["required"] = ["spec"]
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
    """Adds the rules that compare fields, each at a place from which CEL can read all fields that it compares."""
    for rule in RULES:
        if rule.cel:
            validation = {"rule": rule.cel, "message": rule.said} | _field_path(rule)
            _at(root, rule.at).setdefault("x-kubernetes-validations", []).append(validation)
    for pair in TOGETHER:
        validation = {"rule": pair.cel, "message": pair.said, "fieldPath": f".{pair.field}"}
        _at(root, pair.at).setdefault("x-kubernetes-validations", []).append(validation)
    for fixed in FIXED:
        unless = [STATUS_IS_WRITTEN, *[IS_FORMER] * fixed.while_suspended]
        validation = {"rule": " || ".join([*unless, fixed.cel(fixed.path)]), "message": fixed.said}
        root["x-kubernetes-validations"].append(validation | {"fieldPath": f".{fixed.path}"})


def _field_path(rule: Rule) -> dict[str, str]:
    """Returns the field that the API server names when the rule is broken, as a path from the rule's place."""
    path = f".{rule.path}".removeprefix(f".{rule.at}" * bool(rule.at)).removesuffix("[]")
    # The CRD defines no fields of the metadata.
    return {"fieldPath": path} if path and not path.startswith(".metadata") else {}


def _at(schema: dict[str, Any], path: str) -> dict[str, Any]:
    """Returns the schema of the field at a path below `schema`. In the path, `[]` after a list means its items."""
    for name in path.replace("[]", ".items").split(".") if path else ():
        schema = schema["items"] if name == "items" else schema["properties"][name]
    return schema
