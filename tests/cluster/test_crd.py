import copy
import json
from dataclasses import dataclass
from typing import Any

import pytest
import yaml
from ddpjob_operator.api.contract import API_VERSION, MAX_NAME_LENGTH
from ddpjob_operator.api.crd import (
    EXIT_CODE_RULE,
    INTERVAL_RULE,
    MATCH_RULE,
    NAME_RULE,
    PROCS_RULE,
    SPEC_RULES,
    TEMPLATE_RULES,
)

from tests.cluster.conftest import CRD
from tests.plant import Plant, PlantError

Values = dict[str, Any]
"""Values by their path in the job, with dots; whatever is missing on the way is made."""

CONTAINER = "spec.template.spec.containers.0"
INIT = [{"name": "prepare", "image": "any", "env": [{"name": "SIZE", "value": "1"}]}]
BOTH = {"path": "/checkpoints", "everySteps": 5, "everySeconds": 5}


@dataclass(frozen=True)
class Case:
    """What a rule refuses, and the nearest that it lets pass.

    path  where the API server says that it is wrong
    """

    path: str
    message: str
    bad: Values
    good: Values


def _reserved(path: str, message: str, kind: str) -> Case:
    there = f"spec.template.metadata.{kind}"
    return Case(path, message, {there: {"ddpjob.dev/team": "a"}}, {there: {"example.com/team": "a"}})


OF_THE_CONTRACT = "a variable of the contract between DDPJob and its pods"


def _rules(path: str, message: str, bad: Values, good: Values) -> Case:
    """About a rule of what to do after a failure."""
    bad, good = ({"spec.restart.rules": [{"action": "Fail"} | rule]} for rule in (bad, good))
    return Case(f"spec.restart.rules[0]{path}", message, bad, good)


RESERVED = "ddpjob.dev/ is reserved for DDPJob; choose another"
SET_BY_US = "is set by DDPJob itself; remove it"
FOREVER = "can never be changed: who brings a job forward is decided when it is made"
WHILE_SUSPENDED = "may change only while the job is suspended: set spec.suspend first"

NEW_JOBS = [
    *(
        Case("", "metadata.name must be at most", {"metadata.name": bad}, {"metadata.name": good})
        for bad, good in [("a" * (MAX_NAME_LENGTH + 1), "a" * MAX_NAME_LENGTH), ("1a", "a1"), ("a.b", "a-b")]
    ),
    *(
        Case(
            "spec.procsPerNode",
            "must be Auto or a whole number",
            {"spec.procsPerNode": bad},
            {"spec.procsPerNode": good},
        )
        for bad, good in [(0, 1), (65, 64), ("auto", "Auto")]
    ),
    Case(
        "spec.template.spec.containers",
        "needs one container named trainer",
        {f"{CONTAINER}.name": "main"},
        {f"{CONTAINER}.name": "trainer"},
    ),
    Case(
        "spec.template.spec.containers",
        OF_THE_CONTRACT,
        {f"{CONTAINER}.env": [{"name": "WORLD_SIZE", "value": "2"}]},
        {f"{CONTAINER}.env": [{"name": "WORLD", "value": "2"}]},
    ),
    Case(
        "spec.template.spec.initContainers",
        OF_THE_CONTRACT,
        {"spec.template.spec.initContainers": INIT, "spec.template.spec.initContainers.0.env.0.name": "MASTER_ADDR"},
        {"spec.template.spec.initContainers": INIT},
    ),
    Case(
        "spec.template.spec.volumes",
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
            "spec.template.spec.containers",
            f"GPUs of the trainer's {kind} must be a whole number, at most 64",
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
        "Auto cannot count devices that are claimed",
        {f"{CONTAINER}.resources": {"claims": [{"name": "gpus"}]}},
        {f"{CONTAINER}.resources": {"claims": [{"name": "gpus"}]}, "spec.procsPerNode": 2},
    ),
    Case(
        "spec.checkpoint.everySeconds",
        "cannot be set together with everySteps",
        {"spec.checkpoint": BOTH},
        {"spec.checkpoint": {"path": "/checkpoints", "everySeconds": 5}},
    ),
    Case(
        "spec.restart.backoffSeconds",
        "must not be more than maxBackoffSeconds",
        {"spec.restart": {"backoffSeconds": 11, "maxBackoffSeconds": 10}},
        {"spec.restart": {"backoffSeconds": 10, "maxBackoffSeconds": 10}},
    ),
    *(
        Case(
            "spec.checkpoint.everySeconds",
            "must be Auto or a whole number from 1",
            {"spec.checkpoint": {"path": "/checkpoints", "everySeconds": bad}},
            {"spec.checkpoint": {"path": "/checkpoints", "everySeconds": good}},
        )
        for bad, good in [(0, 1), ("auto", "Auto")]
    ),
    Case(
        "spec.statusPort",
        "is masterPort already; ports must differ",
        {"spec.statusPort": 29500},
        {"spec.statusPort": 2000},
    ),
    *(
        Case(
            "spec.controlPort",
            "is masterPort or statusPort already; ports must differ",
            {"spec.controlPort": bad},
            {"spec.controlPort": 2000},
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
    _rules("", "matches nothing; give one of exitCodes, signals, causes", {}, {"exitCodes": [3]}),
    _rules("", "matches nothing", {}, {"signals": ["SIGBUS"]}),
    _rules("", "matches nothing", {}, {"causes": ["OutOfMemory"]}),
    *(
        _rules(
            f".exitCodes[{len(bad) - 1}]",
            "must be an exit code from 1 to 255",
            {"exitCodes": bad},
            {"exitCodes": good},
        )
        for bad, good in [
            ([0], [1]),
            ([256], [255]),
            (["3"], [3]),
            (["0-3"], ["1-3"]),
            (["200-256"], ["200-255"]),
            ([5, "64-63"], [5, "64-64"]),
            ([5, "a-b"], [5, "1-2"]),
            (["1-2-3"], ["1-2"]),
        ]
    ),
]

CHANGES = [
    Case(path, WHILE_SUSPENDED, {at: value}, {at: value, "spec.suspend": True})
    for path, at, value in [
        ("spec.template", f"{CONTAINER}.image", "another"),
        ("spec.procsPerNode", "spec.procsPerNode", 2),
        ("spec.backend", "spec.backend", "Gloo"),
        ("spec.masterPort", "spec.masterPort", 29600),
        ("spec.statusPort", "spec.statusPort", 29601),
        ("spec.controlPort", "spec.controlPort", 29602),
        ("spec.waitForMaster", "spec.waitForMaster", False),
        ("spec.networkPolicy", "spec.networkPolicy", "Enabled"),
        ("spec.checkpoint", "spec.checkpoint", {"path": "/checkpoints"}),
    ]
] + [
    Case(
        "spec.managedBy",
        FOREVER,
        {"spec.managedBy": "example.com/other", "spec.suspend": True},
        {"spec.suspend": True},
    )
]

CASES = NEW_JOBS + CHANGES


def a_job(values: Values) -> dict[str, Any]:
    """The smallest job there is, with these values."""
    trainer = {"name": "trainer", "image": "any"}
    job: dict[str, Any] = {
        "apiVersion": "ddpjob.dev/v1alpha1",
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


@pytest.fixture(scope="module")
def namespace(api: Plant) -> str:
    """With a job in it that is not suspended."""
    name = api.new_namespace()
    kubectl(api, name, "apply", {})
    return name


def kubectl(api: Plant, namespace: str, verb: str, values: Values, *flags: str) -> str:
    return api.kubectl(verb, "--namespace", namespace, *flags, "-f", "-", input=json.dumps(a_job(values)))


def explained(api: Plant, path: str) -> str:
    """What kubectl says of a field; a new type's schema is published a moment after the type is served."""

    def answer() -> str:
        try:
            return api.kubectl("explain", path)
        except PlantError as error:
            if "couldn't find resource" in str(error):
                return ""
            raise

    return str(api.wait(f"the schema with {path}", answer))


def refusal(api: Plant, namespace: str, values: Values) -> str:
    with pytest.raises(PlantError) as refused:
        kubectl(api, namespace, "create", values)
    return str(refused.value)


def test_what_comes_back_is_what_was_sent(api: Plant) -> None:
    sent = yaml.load(CRD.read_text(), yaml.CSafeLoader)
    got = api.get(f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{sent['metadata']['name']}")
    assert got["spec"] == sent["spec"] | {"conversion": {"strategy": "None"}}


def test_no_condition_complains_of_the_schema(api: Plant) -> None:
    conditions = api.get("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/ddpjobs.ddpjob.dev")["status"][
        "conditions"
    ]
    assert {(one["type"], one["status"]) for one in conditions} == {
        ("NamesAccepted", "True"),
        ("Established", "True"),
    }


def test_kubectl_explains_a_pod_template_to_its_leaves(api: Plant) -> None:
    assert "imagePullPolicy" in explained(api, "ddpjob.spec.template.spec.containers")
    said = explained(api, "ddpjob.spec.template.spec.containers.readinessProbe.httpGet.path")
    assert "FIELD: path <string>" in said


@pytest.mark.parametrize(
    "path", ["spec.nodez", "spec.restart.maxRestart", f"{CONTAINER}.imagge", "spec.template.spec.nodeSelektor"]
)
def test_a_typo_is_refused_with_its_path(api: Plant, namespace: str, path: str) -> None:
    said = refusal(api, namespace, {path: "a"})
    assert f'unknown field "{path.replace(".0.", "[0].")}"' in said


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("spec.nodes", 0, "should be greater than or equal to 1"),
        ("spec.nodes", "two", "must be of type integer"),
        ("spec.backend", "nccl", 'supported values: "Auto", "Nccl", "Gloo"'),
        ("spec.template", {}, "spec.template.spec: Required value"),
        ("spec.template.spec", {}, "spec.template.spec.containers: Required value"),
    ],
)
def test_a_value_of_the_wrong_kind_is_refused_with_its_path(
    api: Plant, namespace: str, path: str, value: Any, words: str
) -> None:
    said = refusal(api, namespace, {path: value})
    assert path in said
    assert words in said


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.path}-{next(iter(case.bad.values()))}"[:60])
def test_a_rule_refuses_what_it_is_about_and_nothing_beside_it(api: Plant, namespace: str, case: Case) -> None:
    verb, name = ("apply", {}) if case in CHANGES else ("create", {"metadata.name": "another"})
    with pytest.raises(PlantError) as refused:
        kubectl(api, namespace, verb, name | case.bad, "--dry-run=server")
    assert f"{case.path or '<nil>'}: Invalid value" in str(refused.value)
    assert case.message in str(refused.value)
    kubectl(api, namespace, verb, name | case.good, "--dry-run=server")


def test_every_rule_is_tried() -> None:
    tried = {(case.path, case.message) for case in CASES}
    rules = [("", NAME_RULE), *((f"spec{rule['fieldPath']}", rule) for rule in SPEC_RULES)]
    rules += [(f"spec.template{path}", rule) for path, some in TEMPLATE_RULES.items() for rule in some]
    for path, rule in rules:
        assert any(path == at and rule["message"].startswith(said) for at, said in tried), rule
    for rule in (PROCS_RULE, INTERVAL_RULE, MATCH_RULE, EXIT_CODE_RULE):
        assert any(rule["message"].startswith(said) for _, said in tried), rule


@pytest.mark.parametrize("after", [{}, {"spec.managedBy": "example.com/another"}], ids=["none", "another"])
def test_a_job_of_another_manager_stays_its_own(api: Plant, after: Values) -> None:
    namespace, before = api.new_namespace(), {"spec.managedBy": "example.com/other"}
    kubectl(api, namespace, "create", before)
    kubectl(api, namespace, "replace", before | {"spec.nodes": 2, "spec.suspend": True})
    with pytest.raises(PlantError, match=FOREVER):
        kubectl(api, namespace, "replace", after | {"spec.nodes": 2, "spec.suspend": True})


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("suspend", "startTime and the clock of activeDeadlineSeconds begin anew"),
        ("managedBy", "the operator leaves the job alone"),
        ("activeDeadlineSeconds", "active for so long"),
        ("startDeadlineSeconds", "never yet all run"),
        ("scheduleTimeoutSeconds", "gives all back"),
        ("ttlSecondsAfterFinished", "deleted, with all that belongs to it"),
        ("cleanPodPolicy", "ENUM:"),
        ("successPolicy", "RankZero"),
        ("finishTimeoutSeconds", "counted anew with each that does"),
        ("elastic.shrinkAfterSeconds", "starts again without them"),
        ("restart.maxDisruptions", "there is no limit"),
        ("restart.rules", "first rule that matches"),
        ("restart.rules.exitCodes", "ranges of them"),
        ("restart.rules.signals", "SIGSEGV"),
        ("restart.rules.causes", "status.lastFailure.cause"),
    ],
)
def test_kubectl_explains_how_a_job_lives(api: Plant, path: str, words: str) -> None:
    said = " ".join(explained(api, f"ddpjob.spec.{path}").split())
    assert words in said


def test_the_number_of_nodes_is_a_scale(api: Plant) -> None:
    namespace = api.new_namespace()
    kubectl(api, namespace, "create", {"spec.nodes": 2, "spec.elastic": {"maxNodes": 3}})
    status = json.dumps({"status": {"nodes": 2, "selector": "ddpjob.dev/job-uid=1"}})
    api.kubectl("patch", "ddp/digits", "-n", namespace, "--subresource=status", "--type=merge", "-p", status)
    api.kubectl("scale", "ddp/digits", "-n", namespace, "--replicas=3")
    scale = api.get(f"/apis/{API_VERSION}/namespaces/{namespace}/ddpjobs/digits/scale")
    assert scale["kind"] == "Scale"
    assert scale["spec"] == {"replicas": 3}
    assert scale["status"] == {"replicas": 2, "selector": "ddpjob.dev/job-uid=1"}
    with pytest.raises(PlantError, match=r"is more than elastic\.maxNodes"):
        api.kubectl("scale", "ddp/digits", "-n", namespace, "--replicas=4")


def test_plain_kubectl_apply_holds_it_in_its_annotation(api: Plant) -> None:
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/ddpjobs.ddpjob.dev"
    kept = api.get(path)["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"]
    assert len(kept) < 240_000, "all annotations together may have 262144 bytes"


def test_defaults_come_back(api: Plant, namespace: str) -> None:
    spec = json.loads(kubectl(api, namespace, "apply", {}, "-o", "json"))["spec"]
    assert {name: spec[name] for name in ("nodes", "procsPerNode", "backend", "masterPort", "suspend")} == {
        "nodes": 1,
        "procsPerNode": "Auto",
        "backend": "Auto",
        "masterPort": 29500,
        "suspend": False,
    }
    assert spec["restart"]["maxRestarts"] == 6


def test_its_short_name_and_category_list_it_in_our_columns(api: Plant, namespace: str) -> None:
    progress = {"percent": 30.5, "display": "30%", "eta": "56s"}
    status = {"state": "Running", "ready": "1/1", "progress": progress, "restarts": 2, "message": "1 node running"}
    patch = json.dumps({"status": status})
    api.kubectl("patch", "ddp", "digits", "-n", namespace, "--subresource=status", "--type=merge", "-p", patch)
    columns = api.kubectl("get", "ddp", "-n", namespace).splitlines()
    assert columns[0].split() == ["NAME", "STATE", "READY", "PROGRESS", "ETA", "RESTARTS", "AGE"]
    assert columns[1].split()[:6] == ["digits", "Running", "1/1", "30%", "56s", "2"]
    wide = api.kubectl("get", "ddp", "-n", namespace, "-o", "wide").splitlines()
    assert wide[0].split()[-1] == "MESSAGE"
    assert wide[1].endswith("1 node running")
    assert "ddpjob.ddpjob.dev/digits" in api.kubectl("get", "all", "-n", namespace)
