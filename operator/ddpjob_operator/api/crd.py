"""The CustomResourceDefinition: the type as the API server knows it.

Made from the same schema that editors and local mode go by, in the form that an API server takes ("structural":
everything in place, no references), with the rules that compare fields written in CEL.
"""

from typing import Any

from .contract import (
    CONTRACT_VARIABLES,
    GPU_RESOURCES,
    GROUP,
    KIND,
    MAX_CONTAINERS,
    MAX_ENV,
    MAX_NAME_LENGTH,
    MAX_PROCS_PER_NODE,
    RESERVED_VOLUME_PREFIX,
    TRAINER_CONTAINER,
    VERSION,
)
from .numbers import MOST_SECONDS
from .restart import LAST_EXIT_CODE
from .schema import NAME_PATTERN, job_schema, status_schema

PLURAL = "ddpjobs"
MAX_VOLUMES = 64
MAX_VARIABLE_NAME = 256
MAX_RESOURCES = 64
MAX_QUANTITY = 32

COLUMNS = (
    ("State", ".status.state", "string", 0),
    ("Ready", ".status.ready", "string", 0),
    ("Progress", ".status.progress.display", "string", 0),
    ("ETA", ".status.progress.eta", "string", 0),
    ("Restarts", ".status.restarts", "integer", 0),
    ("Age", ".metadata.creationTimestamp", "date", 0),
    ("Reason", ".status.reason", "string", 1),
    ("Cause", ".status.lastFailure.cause", "string", 1),
    ("Message", ".status.message", "string", 1),
)

SCALE = {
    "specReplicasPath": ".spec.nodes",
    "statusReplicasPath": ".status.nodes",
    "labelSelectorPath": ".status.selector",
}
"""For `kubectl scale` and for autoscalers."""

LEFT_OUT = {"anyOf", "$defs", "additionalProperties", "examples"}
"""Words of JSON Schema that a CRD does not have, or has in another form."""

RESOURCE_KINDS = ("requests", "limits")

Rule = dict[str, str]


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
                }
            ],
        },
    }


def _column(name: str, path: str, kind: str, priority: int) -> dict[str, Any]:
    return {"name": name, "jsonPath": path, "type": kind} | ({"priority": priority} if priority else {})


def _root() -> dict[str, Any]:
    document = job_schema()
    spec = structural(document["properties"]["spec"], document["$defs"])
    _bound(spec)
    spec["x-kubernetes-validations"] = SPEC_RULES
    said = status_schema()
    return {
        "type": "object",
        "description": document["description"],
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": spec,
            "status": structural(said, said["$defs"]),
        },
        "x-kubernetes-validations": [NAME_RULE],
    }


def structural(schema: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    """The schema with its references in place, in the words that an API server knows."""
    if "$ref" in schema:
        target = definitions[schema["$ref"].rsplit("/", 1)[-1]]
        said = {key: value for key, value in schema.items() if key != "$ref"}
        return structural({**target, **said}, definitions)
    result = {key: value for key, value in schema.items() if key not in LEFT_OUT}
    if schema.get("additionalProperties") is True:
        result["x-kubernetes-preserve-unknown-fields"] = True
    if "anyOf" in schema:
        result["x-kubernetes-int-or-string"] = True
    if "properties" in schema:
        result["properties"] = {name: structural(one, definitions) for name, one in schema["properties"].items()}
    elif isinstance(schema.get("additionalProperties"), dict):
        result["additionalProperties"] = structural(schema["additionalProperties"], definitions)
    if "items" in schema:
        result["items"] = structural(schema["items"], definitions)
    return result


def _bound(spec: dict[str, Any]) -> None:
    """Limits without which the API server refuses rules over lists as too costly."""
    procs = spec["properties"]["procsPerNode"]
    procs["x-kubernetes-validations"] = [PROCS_RULE]
    spec["properties"]["checkpoint"]["properties"]["everySeconds"]["x-kubernetes-validations"] = [INTERVAL_RULE]
    rule = spec["properties"]["restart"]["properties"]["rules"]["items"]
    rule["x-kubernetes-validations"] = [MATCH_RULE]
    rule["properties"]["exitCodes"]["items"]["x-kubernetes-validations"] = [EXIT_CODE_RULE]
    rule["properties"]["exitCodes"]["items"]["maxLength"] = 7
    spec["properties"]["template"]["required"] = ["spec"]  # Else a template without it would meet no rule.
    for path, rules in TEMPLATE_RULES.items():
        _at(spec["properties"]["template"], path)["x-kubernetes-validations"] = rules
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


def _at(schema: dict[str, Any], path: str) -> dict[str, Any]:
    """The schema of a field below."""
    for name in path.removeprefix(".").split("."):
        schema = schema["properties"][name]
    return schema


def _rule(rule: str, message: str, path: str = "") -> Rule:
    return {"rule": rule, "message": message} | ({"fieldPath": path} if path else {})


NAME_RULE = _rule(
    f"self.metadata.name.size() <= {MAX_NAME_LENGTH} && self.metadata.name.matches('{NAME_PATTERN}')",
    f"metadata.name must be at most {MAX_NAME_LENGTH} lower-case letters, digits and dashes, the first a letter: "
    "pods and the Service are named after it",
)
PROCS_RULE = _rule(
    f"type(self) == int ? self >= 1 && self <= {MAX_PROCS_PER_NODE} : self == 'Auto'",
    f"must be Auto or a whole number from 1 to {MAX_PROCS_PER_NODE}",
)
INTERVAL_RULE = _rule(
    f"type(self) == int ? self >= 1 && self <= {MOST_SECONDS} : self == 'Auto'",
    f"must be Auto or a whole number from 1 to {MOST_SECONDS}",
)

MATCH_RULE = _rule(
    "has(self.exitCodes) || has(self.signals) || has(self.causes)",
    "matches nothing; give one of exitCodes, signals, causes",
)
EXIT_CODE_RULE = _rule(
    f"type(self) == int ? self >= 1 && self <= {LAST_EXIT_CODE} : self.matches('^[0-9]{{1,3}}-[0-9]{{1,3}}$') && "
    "int(self.split('-')[0]) >= 1 && int(self.split('-')[0]) <= int(self.split('-')[1]) && "
    f"int(self.split('-')[1]) <= {LAST_EXIT_CODE}",
    f"must be an exit code from 1 to {LAST_EXIT_CODE}, or a range of them like 64-78",
)

_NAMES = "[" + ", ".join(f"'{name}'" for name in sorted(CONTRACT_VARIABLES)) + "]"

_IS_GPU = " || ".join(f"k.startsWith('{gpu}')" if gpu.endswith("-") else f"k == '{gpu}'" for gpu in GPU_RESOURCES)


def _of_trainer(containers: str, field: str, rule: str) -> str:
    """The rule for a field of the trainer's resources, if it is there."""
    there = f"c.name == '{TRAINER_CONTAINER}' && has(c.resources) && has(c.resources.{field})"
    return f"{containers}.all(c, !({there}) || {rule})"


def _few_gpus(amount: str) -> str:
    """Whether a quantity is a whole number of GPUs, as many as a node may have processes."""
    small = f"{amount}.matches('^[0-9]{{1,4}}$') && int({amount}) <= {MAX_PROCS_PER_NODE}"
    return f"(type({amount}) == int ? {amount} >= 0 && {amount} <= {MAX_PROCS_PER_NODE} : {small})"


_NO_CONTRACT_VARIABLES = _rule(
    f"self.all(c, !has(c.env) || c.env.all(e, !(e.name in {_NAMES})))",
    "a variable of the contract between DDPJob and its pods (MASTER_ADDR, RANK, DDPJOB_NAME, …) is set by DDPJob "
    "itself; remove it",
)
_NO_NAMES_OF_OURS = _rule(
    f"self.all(key, !key.startsWith('{GROUP}/'))", f"{GROUP}/ is reserved for DDPJob; choose another"
)
_NOT_THERE = _rule("false", "is set by DDPJob itself; remove it")

TEMPLATE_RULES: dict[str, list[Rule]] = {
    ".metadata.labels": [_NO_NAMES_OF_OURS],
    ".metadata.annotations": [_NO_NAMES_OF_OURS],
    ".spec.containers": [
        _rule(
            f"self.exists_one(c, c.name == '{TRAINER_CONTAINER}')",
            f"needs one container named {TRAINER_CONTAINER}, which runs the training",
        ),
        _NO_CONTRACT_VARIABLES,
        *(
            _rule(
                _of_trainer(
                    "self", kind, f"c.resources.{kind}.all(k, !({_IS_GPU}) || {_few_gpus(f'c.resources.{kind}[k]')})"
                ),
                f"GPUs of the trainer's {kind} must be a whole number, at most {MAX_PROCS_PER_NODE}",
            )
            for kind in RESOURCE_KINDS
        ),
    ],
    ".spec.initContainers": [_NO_CONTRACT_VARIABLES],
    ".spec.volumes": [
        _rule(
            f"self.all(v, !v.name.startsWith('{RESERVED_VOLUME_PREFIX}'))",
            f"{RESERVED_VOLUME_PREFIX} is reserved for DDPJob; choose another name",
        )
    ],
    ".spec.hostname": [_NOT_THERE],
    ".spec.subdomain": [_NOT_THERE],
    ".spec.restartPolicy": [
        _rule("self == 'Never'", "must be Never: DDPJob restarts the gang as a whole (spec.restart)")
    ],
}
"""By what they are about below `spec.template`. The API server goes through all rules at each write of a job,
also of its status: a rule about a field that is not there costs nothing, and each step on the way to one does."""

SPEC_RULES: list[Rule] = [
    _rule(
        "type(self.procsPerNode) == int || "
        + _of_trainer("self.template.spec.containers", "claims", "c.resources.claims.size() == 0"),
        "Auto cannot count devices that are claimed; give a number",
        ".procsPerNode",
    ),
    _rule(
        "!has(self.checkpoint) || !has(self.checkpoint.everySteps) || !has(self.checkpoint.everySeconds)",
        "cannot be set together with everySteps; keep one",
        ".checkpoint.everySeconds",
    ),
    _rule(
        "self.restart.backoffSeconds <= self.restart.maxBackoffSeconds",
        "must not be more than maxBackoffSeconds",
        ".restart.backoffSeconds",
    ),
    _rule("self.masterPort != self.statusPort", "is masterPort already; ports must differ", ".statusPort"),
    _rule(
        "!(self.controlPort in [self.masterPort, self.statusPort])",
        "is masterPort or statusPort already; ports must differ",
        ".controlPort",
    ),
    _rule("!has(self.elastic) || self.nodes >= self.elastic.minNodes", "is less than elastic.minNodes", ".nodes"),
    _rule(
        "!has(self.elastic) || !has(self.elastic.maxNodes) || self.nodes <= self.elastic.maxNodes",
        "is more than elastic.maxNodes",
        ".nodes",
    ),
    _rule(
        "has(self.managedBy) == has(oldSelf.managedBy) && "
        "(!has(self.managedBy) || self.managedBy == oldSelf.managedBy)",
        "can never be changed: who brings a job forward is decided when it is made",
        ".managedBy",
    ),
    *(
        _rule(
            f"{same} || oldSelf.suspend || self.suspend",
            "may change only while the job is suspended: set spec.suspend first",
            f".{field}",
        )
        for field, same in {
            "template": "self.template == oldSelf.template",
            "procsPerNode": "self.procsPerNode == oldSelf.procsPerNode",
            "backend": "self.backend == oldSelf.backend",
            "masterPort": "self.masterPort == oldSelf.masterPort",
            "statusPort": "self.statusPort == oldSelf.statusPort",
            "controlPort": "self.controlPort == oldSelf.controlPort",
            "waitForMaster": "self.waitForMaster == oldSelf.waitForMaster",
            "networkPolicy": "(has(self.networkPolicy) ? has(oldSelf.networkPolicy) && self.networkPolicy == "
            "oldSelf.networkPolicy : !has(oldSelf.networkPolicy))",
            "checkpoint": "(has(self.checkpoint) ? has(oldSelf.checkpoint) && self.checkpoint == oldSelf.checkpoint "
            ": !has(oldSelf.checkpoint))",
        }.items()
    ),
]
