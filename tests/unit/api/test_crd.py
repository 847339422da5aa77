"""The CRD: small enough to apply, structural, and with every rule that local mode has."""

import json
from collections.abc import Iterator
from typing import Any

from ddpjob_operator.api.contract import CONTRACT_VARIABLES
from ddpjob_operator.api.crd import crd

LIMIT = 150_000
"""`kubectl apply` keeps the whole object in an annotation, and all annotations together hold 256 KiB."""

UNKNOWN_TO_SERVERS = {"$ref", "$defs", "anyOf", "const"}


def schema() -> dict[str, Any]:
    found: dict[str, Any] = crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return found


def schemas(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A schema and all that it is made of."""
    yield node
    for child in node.get("properties", {}).values():
        yield from schemas(child)
    for key in ("items", "additionalProperties"):
        if isinstance(node.get(key), dict):
            yield from schemas(node[key])


def test_plain_kubectl_apply_can_hold_it() -> None:
    assert len(json.dumps(crd())) < LIMIT


def test_it_is_structural() -> None:
    for node in schemas(schema()):
        assert not UNKNOWN_TO_SERVERS & set(node), node
        assert "type" in node or node.get("x-kubernetes-int-or-string"), node
        assert not ("properties" in node and "additionalProperties" in node), node


INTEGERS = [node for node in schemas(schema()) if node.get("type") == "integer"]


def test_every_integer_has_a_format_that_holds_it() -> None:
    assert [node for node in INTEGERS if node.get("format") not in {"int32", "int64"}] == []
    assert [node for node in INTEGERS if node["format"] == "int32" and node.get("maximum", 0) >= 2**31] == []


def test_no_field_of_ours_is_a_number_or_a_text() -> None:
    """What only Kubernetes' own types are: a client of a typed language has to read such a field by hand."""
    spec = schema()["properties"]["spec"]
    ours = spec | {"properties": {name: one for name, one in spec["properties"].items() if name != "template"}}
    unions = [node for root in (ours, schema()["properties"]["status"]) for node in schemas(root)]
    assert [node for node in unions if node.get("x-kubernetes-int-or-string")] == [
        node
        for node in schemas(spec["properties"]["checkpoint"]["properties"]["volume"])
        if node.get("x-kubernetes-int-or-string")
    ]


KEEPS = "x-kubernetes-preserve-unknown-fields"


def test_nothing_is_kept_that_is_not_known_but_in_the_status() -> None:
    """Whoever makes a job could else nest it deeper than any reader can follow, ours first of all."""
    metadata = schema()["properties"]["metadata"]  # The API server's own.
    of_any_form = [
        node
        for node in schemas(schema())
        if node.get("type") == "object"
        and not {"properties", "additionalProperties"} & set(node)
        and node != metadata
    ]
    assert of_any_form == []
    assert not any(KEEPS in node for node in schemas(schema()["properties"]["spec"]))


def test_fields_and_words_of_a_newer_operator_are_kept_in_the_status() -> None:
    nodes = [*schemas(schema()["properties"]["status"])]
    closed = [node for node in nodes if node["type"] == "object" and "additionalProperties" not in node]
    assert [node for node in closed if not node.get(KEEPS)] == []
    assert [node["enum"] for node in nodes if "enum" in node] == []


def test_a_pod_template_is_known_to_its_leaves() -> None:
    pod = schema()["properties"]["spec"]["properties"]["template"]["properties"]["spec"]["properties"]
    probe = pod["containers"]["items"]["properties"]["readinessProbe"]["properties"]["httpGet"]["properties"]
    assert probe["port"]["x-kubernetes-int-or-string"]


def test_every_variable_of_the_contract_is_refused_by_a_rule() -> None:
    pod = schema()["properties"]["spec"]["properties"]["template"]["properties"]["spec"]["properties"]
    for containers in ("containers", "initContainers"):
        variable = pod[containers]["items"]["properties"]["env"]["items"]["properties"]["name"]
        [rule] = variable["x-kubernetes-validations"]
        assert all(f"'{name}'" in rule["rule"] for name in CONTRACT_VARIABLES)


def test_defaults_are_those_of_the_type() -> None:
    spec = schema()["properties"]["spec"]["properties"]
    assert (spec["nodes"]["default"], spec["restart"]["default"]["maxRestarts"]) == (1, 6)
