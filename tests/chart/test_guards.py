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
GUARDS = (f"guards.podLabels.alsoAllowed={{{RESTORER}}}",)
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
    for words in (
        (a_pod("mine", name="digits"),),
        (LEASE,),
        (review,),
        ("annotate", "ddp", "digits", "ddpjob.dev/mark=x", dry),
        ("delete", "ddp", "digits", dry),
        ("patch", "configmap", "others", "--type=merge", f"--patch={owned}", dry),
    ):
        told = said(guarded, account, *words)
        assert "exited with" not in told, (words, told)
    guarded.kubectl("delete", "clusterrolebinding", "all")
    guarded.kubectl("delete", "configmap/others", "pod/others", "ddpjob/digits", "--namespace=default")
