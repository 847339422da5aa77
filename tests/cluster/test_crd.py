import copy
import json
from dataclasses import dataclass
from typing import Any

import pytest
import yaml
from ddpjob_operator.api.contract import MAX_NAME_LENGTH
from ddpjob_operator.api.crd import NAME_RULE, PROCS_RULE, SPEC_RULES

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
RESERVED = "ddpjob.dev/ is reserved for DDPJob; choose another"
SET_BY_US = "is set by DDPJob itself; remove it"
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
]

CHANGES = [
    Case(path, WHILE_SUSPENDED, {at: value}, {at: value, "spec.suspend": True})
    for path, at, value in [
        ("spec.template", f"{CONTAINER}.image", "another"),
        ("spec.procsPerNode", "spec.procsPerNode", 2),
        ("spec.backend", "spec.backend", "Gloo"),
        ("spec.masterPort", "spec.masterPort", 29600),
        ("spec.waitForMaster", "spec.waitForMaster", False),
        ("spec.networkPolicy", "spec.networkPolicy", "Enabled"),
        ("spec.checkpoint", "spec.checkpoint", {"path": "/checkpoints"}),
    ]
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
    said = api.kubectl("explain", "ddpjob.spec.template.spec.containers")
    assert "imagePullPolicy" in said
    assert "FIELD: path <string>" in api.kubectl(
        "explain", "ddpjob.spec.template.spec.containers.readinessProbe.httpGet.path"
    )


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
    for rule in [NAME_RULE, *SPEC_RULES]:
        path = f"spec{rule['fieldPath']}" if rule is not NAME_RULE else ""
        assert any(path == at and rule["message"].startswith(said) for at, said in tried), rule
    assert any(PROCS_RULE["message"].startswith(said) for _, said in tried)


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
    status = {"state": "Running", "ready": "1/1", "restarts": 2, "message": "1 node running"}
    patch = json.dumps({"status": status})
    api.kubectl("patch", "ddp", "digits", "-n", namespace, "--subresource=status", "--type=merge", "-p", patch)
    columns = api.kubectl("get", "ddp", "-n", namespace).splitlines()
    assert columns[0].split() == ["NAME", "STATE", "READY", "RESTARTS", "AGE"]
    assert columns[1].split()[:4] == ["digits", "Running", "1/1", "2"]
    wide = api.kubectl("get", "ddp", "-n", namespace, "-o", "wide").splitlines()
    assert wide[0].split()[-1] == "MESSAGE"
    assert wide[1].endswith("1 node running")
    assert "ddpjob.ddpjob.dev/digits" in api.kubectl("get", "all", "-n", namespace)
