"""The guards of the cluster's chart: what each admits and refuses, and the sentence that a refused user reads."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ddpjob_operator.api.contract import API_VERSION, FINISHED, KIND, Label

from tests.plant import Plant, PlantError
from tests.support.helm import NAMESPACE, RELEASE
from tests.support.jobs import FOR_LONG, Team, a_job
from tests.support.operators import an_operator

from .test_release import bind, install_type, installed

OPERATOR = f"system:serviceaccount:{NAMESPACE}:{RELEASE}"
RESTORER = "restorer"
GUARDS = (
    f"guards.podLabels.alsoAllowed={{{RESTORER}}}",
    "guards.creators.enabled=true",
    "guards.limits[0].name=tenants",
    "guards.limits[0].namespaceSelector.matchLabels.tenant=blue",
    "guards.limits[0].maxNodes=4",
    "guards.limits[0].maxDeadlineSeconds=3600",
    "guards.limits[0].serviceAccounts={default,training}",
    "guards.limits[0].priorityClasses={low}",
    "guards.limits[0].runtimeClasses={gvisor}",
    "guards.limits[0].registries={registry.example.com/}",
    "guards.limits[0].nodeSelectors.pool={train,shared}",
    "guards.limits[0].hostAccess=false",
)
UID = "11111111-2222-3333-4444-555555555555"
LABELS = {Label.JOB_UID: UID, Label.NODE: "0"}
ONLY_OPERATORS = (
    "only operators of DDPJob may put, change or remove labels of pods that begin with ddpjob.dev/, and {} is none "
    "of them: leave these labels alone. If it is an operator, or a tool that restores backups, an administrator adds "
    "it to the value operators or guards.podLabels.alsoAllowed of the chart ddpjob-cluster"
)


@pytest.fixture(scope="module")
def guarded(bare: Plant) -> Iterator[Plant]:
    """A cluster with both releases, whose operator has its own account and no right but its own."""
    with installed(bare, cluster=GUARDS):
        for user in ("editor", RESTORER):
            bind(bare, user, "edit")
        bare.wait("the guards", lambda: "is none of them" in said(bare, bare.kubeconfig, a_pod("probe", LABELS)))
        account = bare.kubeconfig_for_service_account(NAMESPACE, RELEASE)
        with an_operator(bare, "--no-leader-elect", kubeconfig=account):
            yield bare
        bare.kubectl("delete", "rolebinding", "editor", RESTORER, "--namespace=default")


@pytest.fixture
def team(guarded: Plant) -> Team:
    return Team(guarded, "default")


def a_pod(name: str, labels: dict[str, str] | None = None, /, **owner: Any) -> dict[str, Any]:
    owners = [{"apiVersion": API_VERSION, "kind": KIND, "name": "digits", "uid": UID, "controller": True} | owner]
    metadata = {"name": name, "namespace": "default", "labels": labels or {}, "ownerReferences": owners * bool(owner)}
    spec = {"containers": [{"name": "trainer", "image": "nothing"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def said(plant: Plant, user: Path, *words: str | dict[str, Any]) -> str:
    """What the API server says to somebody who would do something, or who would create an object."""
    match words:
        case ({**document},):
            command, given = ["create", "--filename=-", "--dry-run=server"], json.dumps(document)
        case (*first, {**document}):
            command, given = [*map(str, first), "--filename=-"], json.dumps(document)
        case _:
            command, given = [str(word) for word in words], None
    try:
        return plant.kubectl(*command, input=given, kubeconfig=user)
    except PlantError as error:
        return str(error)


def test_nobody_but_operators_and_who_is_named_makes_a_pod_look_like_a_jobs(guarded: Plant) -> None:
    editor, posing = guarded.kubeconfig_for("editor"), a_pod("posing", LABELS)
    assert ONLY_OPERATORS.format("editor") in said(guarded, editor, posing)
    assert "is none of them" in said(guarded, guarded.kubeconfig, posing), "whatever rights one has"
    assert "pod/posing created" in said(guarded, guarded.kubeconfig_for(RESTORER), posing)
    assert "pod/other created" in said(guarded, editor, a_pod("other", {"team": "blue"}))


def test_a_jobs_pods_can_be_debugged_copied_and_marked_but_keep_their_labels(guarded: Plant, team: Team) -> None:
    team.apply(a_job("long", nodes=1, annotations=FOR_LONG))
    team.wait("Running", "long")
    [pod] = [pod["metadata"]["name"] for pod in team.pods("long")]
    editor, there = guarded.kubeconfig_for("editor"), f"pod/{pod}"
    copy = ("debug", there, "--image=nothing", "--namespace=default", "--profile=general")
    gate = '--patch={"metadata": {"labels": {"argocd.argoproj.io/instance": "apps"}}}'
    for words in (
        ("label", there, "team=blue"),
        ("annotate", there, "ddpjob.dev/note=mine"),
        ("patch", there, gate),
        (*copy, "--quiet"),
        (*copy, "--copy-to=copied"),
    ):
        assert "exited with" not in said(guarded, guarded.kubeconfig, *words), words
    copied = guarded.get("/api/v1/namespaces/default/pods/copied")
    assert not [label for label in copied["metadata"].get("labels") or {} if label.startswith("ddpjob.dev/")]
    assert guarded.get(f"/api/v1/namespaces/default/pods/{pod}")["spec"]["ephemeralContainers"]
    for words in (
        ("label", there, "--overwrite", "ddpjob.dev/node=1"),
        ("label", there, "ddpjob.dev/more=1"),
        ("label", there, "ddpjob.dev/job-uid-"),
        ("label", "pod/copied", f"ddpjob.dev/job-uid={UID}"),
        (*copy, "--copy-to=posing", "--keep-labels"),
    ):
        assert ONLY_OPERATORS.format("editor") in said(guarded, editor, *words), words
    guarded.kubectl("delete", "pod", "copied", "--namespace=default", "--grace-period=0", "--force")
    team.delete("ddpjobs", "long", wait=True)


def test_no_subresource_of_a_pod_leads_around_its_labels(guarded: Plant) -> None:
    pods, labels = "/api/v1/namespaces/default/pods", {"metadata": {"labels": {Label.JOB_UID: UID}}}
    pod = a_pod("plain")
    pod["spec"]["schedulerName"] = "nobody"
    guarded.api.create(pods, pod)
    target = {"target": {"apiVersion": "v1", "kind": "Node", "name": "nowhere"}}
    binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "plain", **labels["metadata"]}} | target
    for path in (f"{pods}/plain/binding", "/api/v1/namespaces/default/bindings"):
        told = said(guarded, guarded.kubeconfig, "create", "--raw", path, binding)
        assert "is none of them" in told, (path, told)
    for subresource in ("status", "resize", "ephemeralcontainers"):
        said(
            guarded,
            guarded.kubeconfig,
            "patch",
            "pod",
            "plain",
            f"--subresource={subresource}",
            f"--patch={json.dumps(labels)}",
        )
    assert not guarded.get(f"{pods}/plain")["metadata"].get("labels")
    assert "exited with" not in said(
        guarded,
        guarded.kubeconfig,
        "create",
        "--raw",
        f"{pods}/plain/binding",
        binding | {"metadata": {"name": "plain"}},
    )
    guarded.kubectl("delete", "pod", "plain", "--namespace=default", "--grace-period=0", "--force")


def test_a_controller_makes_no_such_pods_for_a_user_either(guarded: Plant, team: Team) -> None:
    spec = {"selector": {"matchLabels": LABELS}, "replicas": 1, "template": a_pod("posing", LABELS)}
    spec["template"] = {"metadata": {"labels": LABELS}, "spec": a_pod("posing")["spec"]}
    team.create({"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "posing"}, "spec": spec})
    path = "/apis/apps/v1/namespaces/default/replicasets/posing"
    guarded.wait("a refusal", lambda: guarded.get(path)["status"].get("conditions"))
    [failure] = guarded.get(path)["status"]["conditions"]
    assert (failure["type"], "replicaset-controller is none of them" in failure["message"]) == (
        "ReplicaFailure",
        True,
    )
    guarded.kubectl("delete", "replicaset", "posing", "--namespace=default")


def test_jobs_run_scale_suspend_end_and_go_as_without_guards(team: Team) -> None:
    team.apply(a_job("long", nodes=1, annotations=FOR_LONG, disruption="AfterCheckpoint"), a_job("short"))
    team.wait("Running", "long")
    team.scale(2, "long")
    team.until("{.status.readyNodes}=2", "long")
    team.change("long", suspend=True)
    team.wait("Suspended", "long")
    team.wait("Succeeded", "short")
    team.plant.wait("the mark", lambda: FINISHED in (team.job("short") or {})["metadata"].get("annotations", {}))
    team.change("short", ttlSecondsAfterFinished=0)
    team.plant.wait("the job to go", lambda: team.job("short") is None)
    team.delete("ddpjobs", "long", wait=True)


def test_an_operator_that_no_guard_knows_is_refused_and_its_jobs_say_so(guarded: Plant, team: Team) -> None:
    install_type(guarded, "operators={system:serviceaccount:elsewhere:operator}")
    account = guarded.kubeconfig_for_service_account(NAMESPACE, RELEASE)
    guarded.wait("the guards", lambda: "is none of them" in said(guarded, account, a_pod("p", LABELS, name="digits")))
    team.apply(a_job())
    condition = team.condition("Blocked")
    assert condition["reason"] == "PolicyDenied"
    assert ONLY_OPERATORS.format(OPERATOR) in condition["message"]
    install_type(guarded, *GUARDS, f"operators={{{OPERATOR}}}")
    team.wait("Succeeded")
    team.delete("ddpjobs", "digits", wait=True)


LEASE = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "one", "namespace": NAMESPACE}}
LARGER = '--patch={"spec": {"nodes": 3}}'
IN_KUBE_SYSTEM = "makes nothing in the namespace kube-system: create the job, or install the operator, in another"
NOT_OF_A_JOB = (
    "makes, changes and deletes only what has a DDPJob as its controller, not {}: do this with another account"
)


def test_an_operator_with_all_rights_touches_nothing_but_jobs_and_what_they_own(guarded: Plant, team: Team) -> None:
    team.apply(a_job(suspend=True), a_pod("others"))
    team.kubectl("create", "configmap", "others")
    guarded.kubectl("create", "clusterrolebinding", "all", "--clusterrole=cluster-admin", f"--user={OPERATOR}")
    account = guarded.kubeconfig_for_service_account(NAMESPACE, RELEASE)
    guarded.wait("its rights", lambda: said(guarded, account, "auth", "can-i", "*", "*") == "yes\n")
    owned = json.dumps({"metadata": {"ownerReferences": a_pod("mine", name="digits")["metadata"]["ownerReferences"]}})
    dry = "--dry-run=server"
    of_kube_system = {"metadata": {"name": "one", "namespace": "kube-system"}}
    for words, sentence in (
        ((a_pod("own"),), NOT_OF_A_JOB.format("pods own")),
        ((a_pod("own", apiVersion="apps/v1", kind="ReplicaSet"),), NOT_OF_A_JOB.format("pods own")),
        ((a_pod("own", controller=False),), NOT_OF_A_JOB.format("pods own")),
        ((a_job("another"),), NOT_OF_A_JOB.format("ddpjobs.ddpjob.dev another")),
        (("delete", "pod", "others", dry), NOT_OF_A_JOB.format("pods others")),
        (
            ("patch", "configmap", "others", "--type=merge", f"--patch={owned}", dry),
            NOT_OF_A_JOB.format("configmaps others"),
        ),
        (("label", "configmap", "others", "a=b", dry), NOT_OF_A_JOB.format("configmaps others")),
        (("delete", "configmaps", "--all", dry), NOT_OF_A_JOB.format("configmaps others")),
        (("exec", "others", "--", "id"), NOT_OF_A_JOB.format("pods/exec others")),
        (("create", "token", "default"), NOT_OF_A_JOB.format("serviceaccounts/token default")),
        (("create", "clusterrole", "own", "--verb=get", "--resource=pods", dry), "not clusterroles.rbac"),
        (
            ("patch", "ddp", "digits", "--type=merge", '--patch={"spec": {"nodes": 3}}', dry),
            "ddpjobs.ddpjob.dev digits",
        ),
        ((LEASE | of_kube_system,), IN_KUBE_SYSTEM),
    ):
        told = said(guarded, account, *words)
        assert f"{OPERATOR} is an operator of DDPJob" in told, (words, told)
        assert sentence in told, (words, told)
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": "x"}}
    event = {"apiVersion": "v1", "kind": "Event", "metadata": {"name": "one", "namespace": "default"}}
    event |= {"involvedObject": {"namespace": "default"}}
    for words in (
        (a_pod("mine", name="digits"),),
        (LEASE,),
        (event,),
        (review,),
        ("annotate", "ddp", "digits", "ddpjob.dev/mark=x", dry),
        ("delete", "ddp", "digits", dry),
    ):
        told = said(guarded, account, *words)
        assert "exited with" not in told, (words, told)
    guarded.kubectl("delete", "clusterrolebinding", "all")
    guarded.kubectl("delete", "configmap/others", "pod/others", "ddpjob/digits", "--namespace=default")


QUEUED = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: workloads.kueue.x-k8s.io, annotations: {api-approved.kubernetes.io: unapproved}}
spec:
  group: kueue.x-k8s.io
  names: {plural: workloads, kind: Workload}
  scope: Namespaced
  versions: [{name: v1beta2, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]
"""


def test_an_operator_makes_itself_the_owner_of_a_place_in_a_queue_that_kueue_has_made(guarded: Plant) -> None:
    guarded.kubectl("apply", "--filename=-", input=QUEUED)
    guarded.kubectl("wait", "crd/workloads.kueue.x-k8s.io", "--for=condition=Established")
    workload = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", "metadata": {"name": "place"}}
    guarded.wait("Workloads", lambda: "created" in said(guarded, guarded.kubeconfig, workload))
    guarded.kubectl("create", "--filename=-", input=json.dumps(workload))
    account = guarded.kubeconfig_for_service_account(NAMESPACE, RELEASE)
    patch = ("patch", "workload", "place", "--namespace=default", "--type=merge")
    told = said(guarded, account, *patch, '--patch={"metadata": {"labels": {"a": "b"}}}')
    assert NOT_OF_A_JOB.format("workloads.kueue.x-k8s.io place") in told
    owners = a_pod("mine", name="digits")["metadata"]["ownerReferences"]
    told = said(guarded, account, *patch, f"--patch={json.dumps({'metadata': {'ownerReferences': owners}})}")
    assert "patched" in told
    guarded.kubectl("delete", "crd", "workloads.kueue.x-k8s.io")


SUSPENDER = """
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: suspender}
rules:
  - {apiGroups: [ddpjob.dev], resources: [ddpjobs, ddpjobs/scale], verbs: [get, create, patch]}
"""


def test_who_may_create_no_pods_says_what_no_job_runs_but_may_suspend_resume_and_cancel(
    guarded: Plant, team: Team
) -> None:
    guarded.kubectl("apply", "--filename=-", input=SUSPENDER)
    guarded.kubectl("create", "clusterrolebinding", "suspender", "--clusterrole=suspender", "--user=suspender")
    team.apply(a_job(suspend=True, procsPerNode=2))
    suspender, editor = guarded.kubeconfig_for("suspender"), guarded.kubeconfig_for("editor")
    guarded.wait("its rights", lambda: said(guarded, suspender, "auth", "can-i", "patch", "ddpjobs") == "yes\n")
    change = ("patch", "ddp", "digits", "--type=merge", "--dry-run=server")
    place = '--patch={"spec": {"checkpoint": {"path": "/elsewhere"}}}'
    image = '--patch={"spec": {"template": {"spec": {"activeDeadlineSeconds": 7}}}}'
    left_out = '--patch={"spec": {"procsPerNode": null}}'
    scale = ("scale", "ddp", "digits", "--replicas=3")
    for words in (
        (a_job("another"),),
        (*change, image),
        (*change, LARGER),
        (*change, place),
        (*change, left_out),
        scale,
    ):
        told = said(guarded, suspender, *words)
        sentence = (
            "suspender may not create pods in the namespace default, and so may not say what a DDPJob runs there"
        )
        assert f"{sentence}: ask for that right, or change nothing but spec.suspend and spec.cancel" in told, told
    for field in ("suspend", "cancel"):
        told = said(
            guarded, suspender, *change, f'--patch={{"spec": {{"{field}": {str(field == "cancel").lower()}}}}}'
        )
        assert "patched" in told, told
    for words in ((a_job("another"),), (*change, LARGER), scale):
        assert "exited with" not in said(guarded, editor, *words), words
    guarded.kubectl("delete", "clusterrolebinding/suspender", "clusterrole/suspender")
    team.delete("ddpjobs", "digits", wait=True)


ALLOWED = {
    "serviceAccountName": "training",
    "runtimeClassName": "gvisor",
    "nodeSelector": {"pool": "shared"},
    "containers": [{"name": "trainer", "image": "registry.example.com/trainer:1"}],
}
INIT = {"name": "first", "image": "registry.example.com/init:1"}


def allowed(template: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    """A job that the limits admit, but for what is said."""
    job = a_job(**{"nodes": 4, "activeDeadlineSeconds": 3600} | spec)
    job["metadata"]["namespace"] = "tenant"
    job["spec"]["template"] = {"spec": ALLOWED | (template or {})}
    return job


NONE_OF = "is none of those that this namespace allows"
EVERY_MISTAKE = (
    "spec.nodes: 5 is more than a DDPJob of this namespace may have, 4; spec.template.spec.nodeSelector: a DDPJob of "
    "this namespace has to select pool: train or shared; spec.template.spec: images of a DDPJob of this namespace "
    "have to begin with registry.example.com/: a, b.io/c"
)


@pytest.mark.parametrize(
    ("job", "sentence"),
    [
        (allowed(nodes=5), "spec.nodes: 5 is more than a DDPJob of this namespace may have, 4"),
        (allowed(elastic={"maxNodes": 8}), "spec.nodes: 8 is more than a DDPJob"),
        (
            allowed(activeDeadlineSeconds=3601),
            "spec.activeDeadlineSeconds: a DDPJob of this namespace has to set it, to",
        ),
        (allowed(activeDeadlineSeconds=None), "has to set it, to at most 3600"),
        (
            allowed({"serviceAccountName": "builder"}),
            f"spec.template.spec.serviceAccountName: builder {NONE_OF}: def",
        ),
        (
            allowed({"priorityClassName": "high"}),
            f"spec.template.spec.priorityClassName: high {NONE_OF}: low",
        ),
        (allowed({"runtimeClassName": "runc"}), f"spec.template.spec.runtimeClassName: runc {NONE_OF}: gvisor"),
        (
            allowed({"nodeSelector": {"pool": "red"}}),
            "nodeSelector: a DDPJob of this namespace has to select pool: train or",
        ),
        (allowed({"nodeSelector": None}), "has to select pool: train or shared"),
        (
            allowed({"initContainers": [INIT | {"image": "busybox"}]}),
            "images of a DDPJob of this namespace have to begin with registry.example.com/: busybox",
        ),
        (
            allowed(
                {
                    "volumes": [{"name": "a", "image": {"reference": "b.io/c"}}],
                    "initContainers": [INIT | {"image": "a"}],
                    "nodeSelector": None,
                },
                nodes=5,
            ),
            EVERY_MISTAKE,
        ),
        (allowed({"hostNetwork": True}), "has no access to its Kubernetes node: leave out hostNetwork"),
        (allowed({"volumes": [{"name": "a", "hostPath": {"path": "/"}}]}), "has no access to its Kubernetes node"),
        (
            allowed(checkpoint={"path": "/ckpt", "volume": {"hostPath": {"path": "/"}}}),
            "has no access to its Kubernetes node",
        ),
        (
            allowed({"initContainers": [INIT | {"securityContext": {"privileged": True}}]}),
            "has no access to its Kubernetes node",
        ),
        (
            allowed({"initContainers": [INIT | {"securityContext": {"capabilities": {"add": ["CAP_SYS_ADMIN"]}}}]}),
            "capabilities such as SYS_ADMIN",
        ),
        (
            allowed({"initContainers": [INIT | {"securityContext": {"procMount": "Unmasked"}}]}),
            "has no access to its Kubernetes node",
        ),
        (
            allowed({"initContainers": [INIT | {"ports": [{"containerPort": 1, "hostPort": 1}]}]}),
            "has no access to its Kubernetes node",
        ),
    ],
)
def test_a_limit_names_the_field_and_what_would_be_right(tenant: Plant, job: dict[str, Any], sentence: str) -> None:
    told = said(tenant, tenant.kubeconfig, job)
    assert "ValidatingAdmissionPolicy 'ddpjob-limits-tenants'" in told
    assert sentence in told
    elsewhere = job | {"metadata": {"name": "limited"}}
    assert "created" in said(tenant, tenant.kubeconfig, elsewhere), "in a namespace that no limit selects"


def test_what_is_within_the_limits_is_admitted_and_what_was_there_can_be_suspended(tenant: Plant) -> None:
    team = Team(tenant, "tenant")
    rdma = {"initContainers": [INIT | {"securityContext": {"capabilities": {"add": ["IPC_LOCK"], "drop": ["ALL"]}}}]}
    for job in (allowed(), allowed({"serviceAccountName": None, "runtimeClassName": None}, nodes=1), allowed(rdma)):
        assert "created" in said(tenant, tenant.kubeconfig, job)
    label = "/api/v1/namespaces/tenant"
    tenant.api.patch(label, {"metadata": {"labels": {"tenant": None}}})
    former = json.dumps(allowed(nodes=8, suspend=True))
    tenant.wait("no limit", lambda: "created" in said(tenant, tenant.kubeconfig, json.loads(former)))
    team.create(json.loads(former))
    tenant.api.patch(label, {"metadata": {"labels": {"tenant": "blue"}}})
    change = ("patch", "ddp", "digits", "--namespace=tenant", "--type=merge", "--dry-run=server")
    tenant.wait("the limit", lambda: "may have, 4" in said(tenant, tenant.kubeconfig, *change, LARGEST))
    assert "patched" in said(tenant, tenant.kubeconfig, *change, '--patch={"spec": {"suspend": false}}')
    scale = ("scale", "ddp", "digits", "--namespace=tenant")
    assert "spec.nodes: 9 is more than" in said(tenant, tenant.kubeconfig, *scale, "--replicas=9")
    assert "scaled" in said(tenant, tenant.kubeconfig, *scale, "--replicas=4")
    team.delete("ddpjobs", "digits", wait=True)


LARGEST = '--patch={"spec": {"nodes": 9}}'


@pytest.fixture(scope="module")
def tenant(guarded: Plant) -> Plant:
    """The cluster, with a namespace that the limits select."""
    labels = {"metadata": {"name": "tenant", "labels": {"tenant": "blue"}}}
    guarded.api.create("/api/v1/namespaces", labels)
    guarded.wait("the limits", lambda: "may have, 4" in said(guarded, guarded.kubeconfig, allowed(nodes=5)))
    return guarded
