import json
from datetime import UTC, datetime
from typing import Any

import pytest
import yaml
from ddpjob_operator.api import DDPJob
from ddpjob_operator.api.contract import API_VERSION
from ddpjob_operator.api.rules import FIXED_FOR_EVER
from ddpjob_operator.engine import CreatePod, Snapshot, decide

from tests.plant import Plant, PlantError
from tests.support.api_client import ApiError, collection
from tests.support.crd import CRD
from tests.support.jobs import Team
from tests.support.refused_jobs import BY_CRD, BY_POD, CHANGES, CONTAINER, NEW_JOBS, SECRET, Case, Values, a_job

TRIED = "dryRun=All&fieldValidation=Strict"


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


def tried(api: Plant, namespace: str, values: Values) -> None:
    """Makes the job as `kubectl create --dry-run=server` does, which is refused with an ApiError or is not."""
    job = a_job(values)
    api.api.create(f"{collection(job, namespace)}?{TRIED}", job)


def change_tried(api: Plant, namespace: str, values: Values) -> None:
    """As `tried`, of a change of the job that there is."""
    job = a_job(values)
    api.api.patch(f"{collection(job, namespace)}/digits?{TRIED}", job)


def refusal(api: Plant, namespace: str, values: Values) -> str:
    with pytest.raises(ApiError) as refused:
        tried(api, namespace, values)
    return str(refused.value)


def test_what_comes_back_is_what_was_sent(api: Plant) -> None:
    sent = yaml.load(CRD.read_text(), yaml.CSafeLoader)
    got = api.get(f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{sent['metadata']['name']}")
    assert got["spec"] == as_kept(sent["spec"]) | {"conversion": {"strategy": "None"}}


def as_kept(part: Any) -> Any:
    """Without empty mappings of properties, which the API server drops."""
    if isinstance(part, dict):
        return {key: as_kept(one) for key, one in part.items() if (key, one) != ("properties", {})}
    return [as_kept(one) for one in part] if isinstance(part, list) else part


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
        ("spec.backend", "nccl", 'supported values: "Auto", "NCCL", "Gloo"'),
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


@pytest.mark.parametrize("case", [*NEW_JOBS, *BY_CRD, *CHANGES], ids=str)
def test_a_rule_refuses_what_it_is_about_and_nothing_beside_it(api: Plant, namespace: str, case: Case) -> None:
    attempt, name = (change_tried, {}) if case in CHANGES else (tried, {"metadata.name": "another"})
    with pytest.raises(ApiError) as refused:
        attempt(api, namespace, name | case.bad)
    assert SECRET not in str(refused.value)
    if case not in BY_CRD:
        assert f"{_told_path(case)}: Invalid value" in str(refused.value)
        assert case.rule.said in str(refused.value)
    attempt(api, namespace, name | case.good)


def _told_path(case: Case) -> str:
    """Where the API server says that a rule is broken: at the root it names no item of a list, nor metadata."""
    if case.rule.at:
        return case.path
    return "<nil>" if case.path.startswith("metadata") else case.path.partition("[")[0]


def test_a_status_that_is_sent_along_does_not_open_what_is_fixed(api: Plant) -> None:
    namespace = api.new_namespace()
    kubectl(api, namespace, "create", {})
    Team(api, namespace).say(message="as it is")
    another = {
        "spec.template.spec.priorityClassName": "another",
        "status.message": "as if another status were written",
    }
    with pytest.raises(ApiError, match="may change only while the job is suspended"):
        change_tried(api, namespace, another)
    change_tried(api, namespace, another | {"spec.suspend": True})


def test_who_applies_a_job_has_its_template_as_a_whole_and_of_the_other_fields_those_that_it_names(
    api: Plant,
) -> None:
    namespace = api.new_namespace()

    def applied(job: dict[str, Any], manager: str, *flags: str) -> dict[str, Any]:
        """The job's spec, once it was applied server-side by this manager of fields."""
        flags = ("--server-side", f"--field-manager={manager}", "--namespace", namespace, *flags)
        api.kubectl("apply", *flags, "-f", "-", input=json.dumps(job))
        spec: dict[str, Any] = api.get(f"/apis/{API_VERSION}/namespaces/{namespace}/ddpjobs/digits")["spec"]
        return spec

    labelled = {"spec.template.metadata.labels.team": "a"}
    applied(a_job(labelled), "team")
    applied(a_job({}) | {"spec": {"suspend": True}}, "night")
    spec = applied(a_job(labelled | {"spec.nodes": 2}), "team")
    assert (spec["nodes"], spec["suspend"], spec["template"]["metadata"]["labels"]) == (2, True, {"team": "a"})
    another = a_job({"spec.template.metadata.labels.night": "b", "spec.suspend": True})
    with pytest.raises(PlantError, match=r'conflict with "team".*\.spec\.template'):
        applied(another, "night")
    spec = applied(another, "night", "--force-conflicts")
    assert (spec["nodes"], spec["template"]["metadata"]["labels"]) == (2, {"night": "b"})


def test_other_code_is_not_applied_without_effect_to_a_job_whose_code_was_replaced(api: Plant) -> None:
    namespace = api.new_namespace()

    def template(config_map: str) -> Values:
        return {"spec.template.spec.volumes": [{"name": "code-archive", "configMap": {"name": config_map}}]}

    kubectl(api, namespace, "apply", template("code-0") | {"spec.suspend": True})
    replaced = {"configMap": "code-1", "revision": 1}
    api.kubectl(
        "patch", "ddp/digits", "-n", namespace, "--type=merge", "-p", json.dumps({"spec": {"code": replaced}})
    )
    kubectl(api, namespace, "apply", template("code-0") | {"spec.suspend": True, f"{CONTAINER}.image": "another"})
    with pytest.raises(PlantError, match=r"spec\.code: Invalid value: .*remove spec\.code with the same change"):
        kubectl(api, namespace, "apply", template("code-2") | {"spec.suspend": True})
    kubectl(api, namespace, "apply", template("code-2") | {"spec.suspend": True, "spec.code": None})
    spec = api.get(f"/apis/{API_VERSION}/namespaces/{namespace}/ddpjobs/digits")["spec"]
    assert ("code" in spec, spec["template"]["spec"]["volumes"][0]["configMap"]["name"]) == (False, "code-2")


@pytest.mark.parametrize("case", BY_POD, ids=str)
def test_what_the_crd_cannot_see_is_refused_of_the_pod(api: Plant, namespace: str, case: Case) -> None:
    for values in (case.bad, case.good):
        tried(api, namespace, {"metadata.name": "another"} | values)
    with pytest.raises(ApiError, match="422"):
        pod_tried(api, namespace, case.bad)
    pod_tried(api, namespace, case.good)


def pod_tried(api: Plant, namespace: str, values: Values) -> None:
    """As `tried`, of the first pod that the job leads to."""
    job = DDPJob.from_dict(a_job({"metadata.uid": "1", "metadata.namespace": namespace} | values))
    actions = decide(Snapshot(datetime(2026, 1, 1, tzinfo=UTC), job)).actions
    pod = next(action.build() for action in actions if isinstance(action, CreatePod))
    api.api.create(f"/api/v1/namespaces/{namespace}/pods?{TRIED}", pod)


@pytest.mark.parametrize("after", [{}, {"spec.managedBy": "example.com/another"}], ids=["none", "another"])
def test_a_job_of_another_manager_stays_its_own(api: Plant, after: Values) -> None:
    namespace, before = api.new_namespace(), {"spec.managedBy": "example.com/other"}
    kubectl(api, namespace, "create", before)
    kubectl(api, namespace, "replace", before | {"spec.nodes": 2, "spec.suspend": True})
    with pytest.raises(PlantError, match=FIXED_FOR_EVER):
        kubectl(api, namespace, "replace", after | {"spec.nodes": 2, "spec.suspend": True})


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("suspend", "startTime and the clock of activeDeadlineSeconds start over"),
        ("managedBy", "the operator leaves the job alone"),
        ("activeDeadlineSeconds", "active for this long"),
        ("startDeadlineSeconds", "without all its ranks ever having run"),
        ("scheduleTimeoutSeconds", "the gang gives them up"),
        ("ttlSecondsAfterFinished", "deleted with all that belongs to it"),
        ("cleanPodPolicy", "ENUM:"),
        ("successPolicy", "RankZero"),
        ("finishTimeoutSeconds", "anew with each rank that finishes"),
        ("elastic.shrinkAfterSeconds", "starts again without them"),
        ("restart.maxDisruptions", "there is no limit"),
        ("restart.rules", "first rule that matches"),
        ("restart.rules.exitCodes.operator", "A rank without an exit code matches neither"),
        ("restart.rules.signals", "SIGSEGV"),
        ("restart.rules.causes", "status.incidents[0].cause"),
    ],
)
def test_kubectl_explains_how_a_job_lives(api: Plant, path: str, words: str) -> None:
    said = " ".join(explained(api, f"ddpjob.spec.{path}").split())
    assert words in said


def test_the_number_of_nodes_is_a_scale(api: Plant) -> None:
    namespace = api.new_namespace()
    kubectl(api, namespace, "create", {"spec.nodes": 2, "spec.elastic": {"maxNodes": 3}})
    Team(api, namespace).say(nodes=2, selector="ddpjob.dev/job-uid=1")
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
    assert len(kept) < 150_000, "all annotations together may have 262144 bytes"


def test_defaults_come_back(api: Plant, namespace: str) -> None:
    spec = json.loads(kubectl(api, namespace, "apply", {}, "-o", "json"))["spec"]
    assert {name: spec[name] for name in ("nodes", "backend", "suspend")} == {
        "nodes": 1,
        "backend": "Auto",
        "suspend": False,
    }
    assert "procsPerNode" not in spec
    assert spec["restart"]["maxRestarts"] == 6
    assert spec["network"] == {"masterPort": 29500, "statusPort": 29501, "controlPort": 29502, "waitForMaster": True}


def test_its_short_name_lists_it_in_our_columns_and_all_does_not(api: Plant, namespace: str) -> None:
    display = {"ready": "1/1", "progress": "30%", "eta": "56s"}
    running = {"state": "Running", "reason": "AllPodsRunning", "display": display, "message": "1 node running"}
    incident = {"time": "2026-01-01T00:00:00.000000Z", "attempt": 1, "node": 1, "pod": "digits-1-x"}
    incidents = [incident | {"attempt": 2, "cause": "NodeLost"}, incident | {"cause": "Application"}]
    status = running | {"incidents": incidents, "restarts": 2}
    Team(api, namespace).say(**status)
    columns = api.kubectl("get", "ddp", "-n", namespace).splitlines()
    assert columns[0].split() == ["NAME", "STATE", "READY", "PROGRESS", "ETA", "RESTARTS", "AGE"]
    assert columns[1].split()[:6] == ["digits", "Running", "1/1", "30%", "56s", "2"]
    wide = api.kubectl("get", "ddp", "-n", namespace, "-o", "wide").splitlines()
    assert wide[0].split()[-3:] == ["REASON", "CAUSE", "MESSAGE"]
    assert wide[1].split()[-5:] == ["AllPodsRunning", "NodeLost", "1", "node", "running"]
    assert "digits" not in api.kubectl("get", "all", "-n", namespace), "kubectl delete all takes no training along"
