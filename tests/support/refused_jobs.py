"""Jobs that a rule of the API refuses, each beside the most similar job that the rule accepts."""

import copy
import re
from dataclasses import dataclass
from typing import Any

from ddpjob_operator.api.contract import MAX_CONTAINERS, MAX_ENV, MAX_NAME_LENGTH
from ddpjob_operator.api.rules import FIXED, FIXED_FOR_EVER, RULES, WHILE_SUSPENDED, Fixed, Rule

from tests.support.exit_codes import among

Values = dict[str, Any]
"""Values by their path in the job, with dots. Missing parts of a path are created."""

CONTAINER = "spec.template.spec.containers.0"
RESTARTS = {"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}}
BESIDE = {"name": "upload", "image": "any", "restartPolicy": "Never", "restartPolicyRules": [RESTARTS]}
INIT = [{"name": "prepare", "image": "any", "env": [{"name": "SIZE", "value": "1"}]}]


@dataclass(frozen=True)
class Case:
    """A job that a rule refuses, and the most similar job that the rule accepts.

    path     the field that the rule is about
    message  the beginning of the API server's message
    """

    path: str
    message: str
    bad: Values
    good: Values

    @property
    def rule(self) -> Rule | Fixed:
        """The only rule of which this case is an example."""
        path = re.sub(r"\[\d+\]", "[]", self.path)
        (rule,) = (one for one in (*RULES, *FIXED) if one.path == path and one.said.startswith(self.message))
        return rule

    def __str__(self) -> str:
        return f"{self.path}-{next(iter(self.bad.values()))}"[:60]


def _reserved(path: str, message: str, kind: str) -> Case:
    there = f"spec.template.metadata.{kind}"
    return Case(path, message, {there: {"ddpjob.dev/team": "a"}}, {there: {"example.com/team": "a"}})


SECRET = "wJalrXUtnFEMI"

URLS = (
    (f"s3://me:{SECRET}@bucket/a", "s3://bucket/a"),
    (f"az://box/a?sig={SECRET}", "az://box/a"),
    (f"gs://bucket/a#{SECRET}", "gs://bucket"),
    (f"abfss://me:{SECRET}@host/a", "abfss://box@account.dfs.core.windows.net/a/"),
    ("file:///a", "/a"),
    ("ftp://bucket/a", "s3a://bucket/a"),
    ("s3://bucket//a", "s3://bucket/a/b"),
    ("s3://bucket/a\n", "s3://bucket/été"),
    ("s3://bucket/$(RANK)", "s3://bucket/(RANK)"),
    ("s3://", "s3://0"),
)
"""For the paths of checkpoints and histories: refused URLs, each beside the most similar value that is accepted."""


OF_THE_CONTRACT = "a variable of the contract between DDPJob and its pods"


def _rules(path: str, message: str, bad: Values, good: Values) -> Case:
    """A case about a rule that says what follows a failure."""
    bad, good = ({"spec.restart.rules": [{"action": "Fail"} | rule]} for rule in (bad, good))
    return Case(f"spec.restart.rules[0]{path}", message, bad, good)


RESERVED = "ddpjob.dev/ is reserved for DDPJob; choose another"
SET_BY_US = "is set by DDPJob itself; remove it"

NEW_JOBS = [
    *(
        Case("metadata.name", "metadata.name must be at most", {"metadata.name": bad}, {"metadata.name": good})
        for bad, good in [("a" * (MAX_NAME_LENGTH + 1), "a" * MAX_NAME_LENGTH), ("1a", "a1"), ("a.b", "a-b")]
    ),
    Case(
        "spec.template.spec.containers",
        "needs a container named trainer",
        {f"{CONTAINER}.name": "main"},
        {f"{CONTAINER}.name": "trainer"},
    ),
    Case(
        "spec.template.spec.containers[0].env[0].name",
        OF_THE_CONTRACT,
        {f"{CONTAINER}.env": [{"name": "WORLD_SIZE", "value": "2"}]},
        {f"{CONTAINER}.env": [{"name": "WORLD", "value": "2"}]},
    ),
    Case(
        "spec.template.spec.initContainers[0].env[0].name",
        OF_THE_CONTRACT,
        {"spec.template.spec.initContainers": INIT, "spec.template.spec.initContainers.0.env.0.name": "MASTER_ADDR"},
        {"spec.template.spec.initContainers": INIT},
    ),
    Case(
        "spec.template.spec.initContainers",
        "the name of a container is used twice",
        {"spec.template.spec.initContainers": INIT, "spec.template.spec.initContainers.0.name": "trainer"},
        {"spec.template.spec.initContainers": INIT},
    ),
    Case(
        "spec.template.spec.volumes[0].name",
        "ddpjob- is reserved for DDPJob",
        {"spec.template.spec.volumes": [{"name": "ddpjob-data", "emptyDir": {}}]},
        {"spec.template.spec.volumes": [{"name": "data", "emptyDir": {}}]},
    ),
    _reserved("spec.template.metadata.labels", RESERVED, "labels"),
    _reserved("spec.template.metadata.annotations", RESERVED, "annotations"),
    *(
        Case(f"spec.template.spec.{name}", SET_BY_US, {f"spec.template.spec.{name}": "a"}, {})
        for name in ("hostname", "subdomain")
    ),
    Case(
        "spec.template.spec.restartPolicy",
        "must be Never",
        {"spec.template.spec.restartPolicy": "OnFailure"},
        {"spec.template.spec.restartPolicy": "Never"},
    ),
    *(
        Case(
            "spec.template.spec.containers[0].restartPolicy",
            "restarts only the trainer; remove it",
            {f"{CONTAINER}.restartPolicy": policy},
            {f"{CONTAINER}.restartPolicy": "Never"},
        )
        for policy in ("Always", "OnFailure")
    ),
    Case(
        "spec.template.spec.containers[0].restartPolicyRules",
        "restarts only the trainer; remove it",
        {f"{CONTAINER}.restartPolicy": "Never", f"{CONTAINER}.restartPolicyRules": [RESTARTS]},
        {f"{CONTAINER}.restartPolicy": "Never"},
    ),
    # Containers other than the trainer may restart alone.
    Case(
        "spec.template.spec.containers[1].restartPolicy",
        "restarts only the trainer; remove it",
        {"spec.template.spec.containers": [BESIDE, {"name": "trainer", "image": "any", "restartPolicy": "Always"}]},
        {"spec.template.spec.containers": [BESIDE, {"name": "trainer", "image": "any"}]},
    ),
    *(
        Case(
            f"spec.template.spec.containers[0].resources.{kind}",
            f"a container's {kind} must be a whole number of GPUs, at most 64",
            {f"{CONTAINER}.resources": {kind: {name: bad}}},
            {f"{CONTAINER}.resources": {kind: {name: good}}},
        )
        for kind in ("limits", "requests")
        for name, bad, good in [
            ("nvidia.com/gpu", "one", "1"),
            ("nvidia.com/gpu", "0.5", "0"),
            ("nvidia.com/gpu", -1, 0),
            ("amd.com/gpu", 65, 64),
            ("amd.com/gpu", "65", "64"),
            ("nvidia.com/mig-1g.5gb", "1k", 1),
        ]
    ),
    Case(
        "spec.procsPerNode",
        "is missing; give a number, because claimed devices cannot be counted",
        {f"{CONTAINER}.resources": {"claims": [{"name": "gpus"}]}},
        {f"{CONTAINER}.resources": {"claims": [{"name": "gpus"}]}, "spec.procsPerNode": 2},
    ),
    *(
        Case(
            "spec.checkpoint",
            "at most one of interval, everySteps, everySeconds is allowed",
            {"spec.checkpoint": {"path": "/checkpoints", **bad}},
            {"spec.checkpoint": {"path": "/checkpoints", **good}},
        )
        for bad, good in [
            ({"everySteps": 5, "everySeconds": 5}, {"everySeconds": 5}),
            ({"interval": "Auto", "everySeconds": 5}, {"interval": "Auto"}),
            ({"interval": "Epochs", "everySteps": 5}, {"everySteps": 5}),
        ]
    ),
    *(
        Case(
            f"{field}.path",
            "must be an absolute path, or a URL such as s3://BUCKET/PATH",
            {field: {"path": bad}},
            {field: {"path": good}},
        )
        for field in ("spec.checkpoint", "spec.history")
        for bad, good in URLS
    ),
    Case(
        "spec.checkpoint.volume",
        "is for a directory, but spec.checkpoint.path is a URL",
        {"spec.checkpoint": {"path": "s3://bucket/a", "volume": {"emptyDir": {}}}},
        {"spec.checkpoint": {"path": "/bucket/a", "volume": {"emptyDir": {}}}},
    ),
    Case(
        "spec.restart.backoffSeconds",
        "is more than maxBackoffSeconds",
        {"spec.restart": {"backoffSeconds": 11, "maxBackoffSeconds": 10}},
        {"spec.restart": {"backoffSeconds": 10, "maxBackoffSeconds": 10}},
    ),
    Case(
        "spec.network.statusPort",
        "is already the value of masterPort; ports must differ",
        {"spec.network.statusPort": 29500},
        {"spec.network.statusPort": 2000},
    ),
    *(
        Case(
            "spec.network.controlPort",
            "is already the value of masterPort or statusPort; ports must differ",
            {"spec.network.controlPort": bad},
            {"spec.network.controlPort": 2000},
        )
        for bad in (29500, 29501)
    ),
    Case(
        "spec.nodes",
        "is less than elastic.minNodes",
        {"spec.nodes": 1, "spec.elastic": {"minNodes": 2}},
        {"spec.nodes": 2, "spec.elastic": {"minNodes": 2}},
    ),
    Case(
        "spec.nodes",
        "is more than elastic.maxNodes",
        {"spec.nodes": 4, "spec.elastic": {"maxNodes": 3}},
        {"spec.nodes": 3, "spec.elastic": {"maxNodes": 3}},
    ),
    *(
        Case(
            f"spec.scheduling.{field}",
            "needs exactly one of",
            {f"spec.scheduling.{field}": bad},
            {f"spec.scheduling.{field}": good},
        )
        for field, bad, good in [
            ("schedulingPolicy", {}, {"gang": {}}),
            ("schedulingPolicy", {"basic": {}, "gang": {}}, {"basic": {}}),
            ("disruptionMode", {}, {"all": {}}),
            ("disruptionMode", {"single": {}, "all": {}}, {"single": {}}),
            ("topology", {}, {"required": "zone"}),
            ("topology", {"required": "zone", "preferred": "zone"}, {"preferred": "zone"}),
        ]
    ),
    *(
        Case(
            "spec.scheduling.schedulingPolicy.gang.minCount",
            "is more than nodes",
            nodes | {"spec.scheduling": {"schedulingPolicy": {"gang": {"minCount": bad}}}},
            nodes | {"spec.scheduling": {"schedulingPolicy": {"gang": {"minCount": good}}}},
        )
        for nodes, bad, good in [(Values(), 2, 1), ({"spec.nodes": 3}, 4, 3)]
    ),
    Case(
        "spec.scheduling",
        "cannot be set together with template.spec.schedulingGroup",
        {"spec.scheduling": {}, "spec.template.spec.schedulingGroup": {"podGroupName": "mine"}},
        {"spec.template.spec.schedulingGroup": {"podGroupName": "mine"}},
    ),
    Case(
        "spec.code",
        "needs a volume code-archive in the template, as ddpjob submit adds it",
        {
            "spec.code": {"configMap": "ddpjob-code-1", "revision": 1},
            "spec.template.spec.volumes": [{"name": "code"}],
        },
        {
            "spec.code": {"configMap": "ddpjob-code-1", "revision": 1},
            "spec.template.spec.volumes": [{"name": "code-archive", "configMap": {"name": "ddpjob-code-0"}}],
        },
    ),
    _rules("", "matches nothing; give one of exitCodes, signals, causes", {}, {"exitCodes": among(3)}),
    _rules("", "matches nothing", {}, {"signals": ["SIGBUS"]}),
    _rules(
        ".action",
        "must be Fail in a rule for StartedOver, because the attempt has already started over",
        {"action": "RestartFree", "causes": ["Stalled", "StartedOver"]},
        {"causes": ["Stalled", "StartedOver"]},
    ),
    _rules("", "matches nothing", {}, {"causes": ["OutOfMemory"]}),
]


def _named(prefix: str, names: list[str], **more: object) -> list[Values]:
    return [{"name": f"{prefix}{name}", **more} for name in names]


def _numbers(count: int) -> list[str]:
    return [str(number) for number in range(count)]


POD = "spec.template.spec"
MOUNTED = {f"{POD}.volumes": [{"name": "data", "emptyDir": {}}]}
KEPT = MOUNTED | {"spec.checkpoint": {"path": "/checkpoints", "volume": {"emptyDir": {}}}}

BY_CRD = [
    *(
        Case(POD, "is used twice", {at: _named("a", ["", ""], **more)}, {at: _named("a", ["", "b"], **more)})
        for at, more in [
            (f"{POD}.initContainers", {"image": "any"}),
            (f"{POD}.volumes", {"emptyDir": {}}),
            (f"{CONTAINER}.env", {"value": "1"}),
        ]
    ),
    Case(
        POD,
        "has too many entries; at most 8",
        {f"{POD}.initContainers": _named("a", _numbers(MAX_CONTAINERS + 1), image="any")},
        {f"{POD}.initContainers": _named("a", _numbers(MAX_CONTAINERS), image="any")},
    ),
    Case(
        f"{POD}.containers[].env",
        "has too many entries; at most 256",
        {f"{CONTAINER}.env": _named("A", _numbers(MAX_ENV + 1))},
        {f"{CONTAINER}.env": _named("A", _numbers(MAX_ENV))},
    ),
]
"""Cases that the bounds in the CRD refuse, with messages from the API server itself."""

BY_POD = [
    Case(
        f"{POD}.containers[].volumeMounts[].name",
        "is not a volume of the template",
        MOUNTED | {f"{CONTAINER}.volumeMounts": [{"name": "date", "mountPath": "/data"}]},
        MOUNTED | {f"{CONTAINER}.volumeMounts": [{"name": "data", "mountPath": "/data"}]},
    ),
    Case(
        f"{POD}.containers[].volumeMounts[].mountPath",
        "is where spec.checkpoint.volume is mounted already",
        KEPT | {f"{CONTAINER}.volumeMounts": [{"name": "data", "mountPath": "/checkpoints"}]},
        KEPT | {f"{CONTAINER}.volumeMounts": [{"name": "data", "mountPath": "/checkpoints/data"}]},
    ),
]
"""Cases that the API server refuses only when the job's pod is created."""

CHANGES = [
    Case(path, WHILE_SUSPENDED, {at: value}, {at: value, "spec.suspend": True})
    for path, at, value in [
        ("spec.template", f"{CONTAINER}.image", "another"),
        ("spec.procsPerNode", "spec.procsPerNode", 2),
        ("spec.backend", "spec.backend", "Gloo"),
        ("spec.network", "spec.network.masterPort", 29600),
        ("spec.network", "spec.network.statusPort", 29601),
        ("spec.network", "spec.network.controlPort", 29602),
        ("spec.network", "spec.network.waitForMaster", False),
        ("spec.network", "spec.network.policy", "Enabled"),
        ("spec.checkpoint", "spec.checkpoint", {"path": "/checkpoints"}),
        ("spec.history", "spec.history", {"path": "/history"}),
    ]
] + [
    Case(
        "spec.managedBy",
        FIXED_FOR_EVER,
        {"spec.managedBy": "example.com/other", "spec.suspend": True},
        {"spec.suspend": True},
    )
]

CASES = NEW_JOBS + BY_CRD + BY_POD + CHANGES


def a_job(values: Values) -> dict[str, Any]:
    """The smallest possible job, changed by these values."""
    trainer = {"name": "trainer", "image": "any"}
    job: dict[str, Any] = {
        "apiVersion": "ddpjob.dev/v1alpha2",
        "kind": "DDPJob",
        "metadata": {"name": "digits"},
        "spec": {"template": {"spec": {"containers": [trainer]}}},
    }
    for path, value in values.items():
        *way, last = path.split(".")
        place: Any = job
        for part in way:
            place = place[int(part)] if isinstance(place, list) else place.setdefault(part, {})
        place[last] = copy.deepcopy(value)
    return job
