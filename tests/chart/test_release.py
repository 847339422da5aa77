"""Installed, upgraded and uninstalled on an API server, and who may do what then."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from ddpjob_operator.cli.cluster.life import UNNOTICED

from tests.plant import Plant, PlantError
from tests.support.crd import wait_until_served
from tests.support.helm import (
    CHART,
    CLUSTER_CHART,
    CLUSTER_RELEASE,
    NAMESPACE,
    RELEASE,
    ROOT,
    HelmError,
    helm,
    named,
    render,
    settings,
)
from tests.support.operators import an_operator

INSTALL = ROOT / "deploy" / "install.yaml"
DIGITS = ROOT / "deploy" / "examples" / "digits.yaml"
CRD = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/ddpjobs.ddpjob.dev"
DEPLOYMENT = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/{RELEASE}"
JOB = "/apis/ddpjob.dev/v1alpha2/namespaces/default/ddpjobs/digits"
CLUSTER_ROLES = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
MANAGED_BY = "app.kubernetes.io/managed-by"
USER_ROLES = ("ddpjob-edit", "ddpjob-view")
OURS = f"app.kubernetes.io/instance={RELEASE}"
UPGRADE = ("upgrade", RELEASE, CHART, "--namespace", NAMESPACE, "--reset-values", *settings(["namespaces={default}"]))
MARK = "  annotations:\n    ddpjob.dev/type-of: ddpjob-cluster\n"
"""What says that a release has no type of its own."""
ADOPTING = ("--namespace", NAMESPACE, "--take-ownership")
KINDS = (
    "deployments,services,serviceaccounts,poddisruptionbudgets,networkpolicies,roles,rolebindings,clusterroles,"
    "clusterrolebindings"
)

EVERYWHERE = "the same rules in one namespace; with these the operator works in tests/e2e/test_operator.py"

Right = tuple[str, str, str]
"""API group and resource, name or "*", verb."""


@contextmanager
def installed(plant: Plant, *values: str, cluster: tuple[str, ...] = ()) -> Iterator[None]:
    """The releases of both charts; afterwards nothing of them is left."""
    install_type(plant, *cluster)
    install(plant, *values)
    try:
        yield
    finally:
        for release in (RELEASE, CLUSTER_RELEASE):
            helm("uninstall", release, "--namespace", NAMESPACE, "--ignore-not-found", plant=plant)
        forget_the_type(plant)


def forget_the_type(plant: Plant) -> None:
    """Deletes what outlives a release: the type, with its jobs, and the roles of its users."""
    plant.kubectl("delete", "crd", "ddpjobs.ddpjob.dev", "--ignore-not-found")
    plant.kubectl("delete", "clusterrole", *USER_ROLES, "--ignore-not-found")


def install_type(plant: Plant, *values: str) -> None:
    words = ["--install", "--namespace", NAMESPACE, "--create-namespace", *settings(values)]
    helm("upgrade", CLUSTER_RELEASE, CLUSTER_CHART, *words, plant=plant)
    wait_until_served(plant)


def install(plant: Plant, *values: str) -> None:
    words = ["--install", "--namespace", NAMESPACE, "--create-namespace", *settings(values)]
    helm("upgrade", RELEASE, CHART, *words, plant=plant)


def bind(plant: Plant, user: str, role: str) -> None:
    """Gives a user one of Kubernetes' own roles in the namespace default, once it includes DDPJobs."""
    path = f"{CLUSTER_ROLES}/{role}"
    plant.wait(f"DDPJobs in {role}", lambda: any("ddpjobs" in rule["resources"] for rule in plant.get(path)["rules"]))
    plant.kubectl("create", "rolebinding", user, f"--clusterrole={role}", f"--user={user}", "--namespace=default")


def left(plant: Plant) -> list[str]:
    """What there is of the operator's release."""
    return plant.kubectl("get", KINDS, "--all-namespaces", "--selector", OURS, "--output", "name").split()


def test_upgrades_leave_jobs_and_operators_and_uninstalls_leave_the_jobs(bare: Plant) -> None:
    with installed(bare):
        bare.kubectl("apply", "--filename", DIGITS)
        job, deployment = bare.get(JOB), bare.get(DEPLOYMENT)
        install(bare, "replicas=2")
        install_type(bare)
        assert bare.get(JOB) == job
        assert bare.get(DEPLOYMENT)["metadata"]["generation"] == deployment["metadata"]["generation"]

        for release in (RELEASE, CLUSTER_RELEASE):
            helm("uninstall", release, "--namespace", NAMESPACE, plant=bare)
        bare.wait("the release to be gone", lambda: not left(bare))
        assert bare.get(JOB) == job

        install_type(bare, "keep=false")
        assert bare.get(JOB) == job
        helm("uninstall", CLUSTER_RELEASE, "--namespace", NAMESPACE, plant=bare)
        bare.wait("the type to be gone", lambda: not bare.get(CRD))
        assert not any(bare.get(f"{CLUSTER_ROLES}/{role}") for role in USER_ROLES)


@pytest.fixture
def former(tmp_path: Path) -> Path:
    """One chart with the objects of both, as there was only one until 0.1.0."""
    chart = tmp_path / "ddpjob-operator"
    shutil.copytree(CHART, chart)
    shutil.copy(CLUSTER_CHART / "files" / "crd-spec.yaml", chart / "files")
    for name in ("_helpers.tpl", "crd.yaml", "user-roles.yaml"):
        text = (CLUSTER_CHART / "templates" / name).read_text()
        (chart / "templates" / f"former-{name}").write_text(text)
    for name, ours in (("_helpers.tpl", '{{- include "ddpjob-operator.checkType" . -}}'), ("rbac.yaml", MARK)):
        file = chart / "templates" / name
        assert ours in file.read_text()
        file.write_text(file.read_text().replace(ours, ""))
    values = yaml.safe_load((CLUSTER_CHART / "values.yaml").read_text())
    (chart / "values.yaml").write_text((CHART / "values.yaml").read_text() + yaml.safe_dump(values))
    (chart / "values.schema.json").unlink()
    return chart


@pytest.mark.parametrize("values", [("keep=true",), ("keep=false", "namespaces={default}")], ids=["kept", "not kept"])
def test_a_release_of_the_one_former_chart_hands_its_type_over_with_every_job_and_can_take_it_back(
    bare: Plant, former: Path, values: tuple[str, ...]
) -> None:
    with installed(bare):
        for release in (RELEASE, CLUSTER_RELEASE):
            helm("uninstall", release, "--namespace", NAMESPACE, plant=bare)
        helm("install", RELEASE, former, *ADOPTING, *settings(values), plant=bare)
        bare.kubectl("apply", "--filename", DIGITS)
        job = bare.get(JOB)

        with pytest.raises(HelmError, match="first hand it over: helm install ddpjob-cluster"):
            helm(*UPGRADE, plant=bare)
        helm("install", CLUSTER_RELEASE, CLUSTER_CHART, *ADOPTING, plant=bare)
        helm(*UPGRADE, plant=bare)
        assert bare.get(JOB) == job
        assert released(bare) == {CLUSTER_RELEASE}

        helm("rollback", RELEASE, "--namespace", NAMESPACE, plant=bare)
        with pytest.raises(HelmError, match="first hand it over: helm install ddpjob-cluster"):
            helm(*UPGRADE, plant=bare)
        helm("upgrade", CLUSTER_RELEASE, CLUSTER_CHART, *ADOPTING, plant=bare)
        helm(*UPGRADE, plant=bare)
        assert bare.get(JOB) == job

        helm("uninstall", CLUSTER_RELEASE, "--namespace", NAMESPACE, plant=bare)
        helm("upgrade", RELEASE, former, *ADOPTING, *settings(values), plant=bare)
        assert bare.get(JOB) == job
        assert released(bare) == {RELEASE}


def released(plant: Plant) -> set[str]:
    """The releases to which the type and the roles of its users belong."""
    kept = [CRD, *(f"{CLUSTER_ROLES}/{role}" for role in USER_ROLES)]
    return {plant.get(path)["metadata"]["annotations"]["meta.helm.sh/release-name"] for path in kept}


def test_the_api_server_takes_all_that_values_add_to_the_operator(bare: Plant) -> None:
    values = (
        f"image.digest=sha256:{'0' * 64}",
        "commonLabels.team=blue",
        "env[0].name=SSL_CERT_FILE,env[0].value=/ca.pem",
        "envFrom[0].secretRef.name=proxy",
        "strategy.type=RollingUpdate,strategy.rollingUpdate.maxUnavailable=0",
        "podDisruptionBudget.maxUnavailable=50%",
        "topologySpreadConstraints[0].topologyKey=zone,topologySpreadConstraints[0].maxSkew=1",
        "topologySpreadConstraints[0].whenUnsatisfiable=DoNotSchedule",
        "extraObjects[0].apiVersion=v1,extraObjects[0].kind=ConfigMap,extraObjects[0].metadata.name=mine",
    )
    rendered = helm("template", RELEASE, CHART, "--namespace", "default", *settings(values))
    command = ("apply", "--dry-run=server", "--validate=strict", "--filename=-")
    said = bare.kubectl(*command, input=rendered)
    assert f"deployment.apps/{RELEASE} created" in said
    assert "configmap/mine created" in said
    with pytest.raises(PlantError, match="unknown field"):
        bare.kubectl(*command, input=rendered.replace("maxUnavailable: 50%", "maxUnavailables: 50%"))


def test_after_an_uninstall_those_whose_jobs_it_keeps_may_still_see_suspend_and_delete_them(bare: Plant) -> None:
    with installed(bare):
        owner, viewer = (bare.kubeconfig_for(name) for name in ("owner", "onlooker"))
        bind(bare, "owner", "edit")
        bind(bare, "onlooker", "view")
        bare.kubectl("create", "--filename", DIGITS, kubeconfig=owner)
        for release in (RELEASE, CLUSTER_RELEASE):
            helm("uninstall", release, "--namespace", NAMESPACE, plant=bare)
        bare.wait("the release to be gone", lambda: not left(bare))
        assert "digits" in bare.kubectl("get", "ddp", kubeconfig=viewer)
        bare.kubectl("patch", "ddp", "digits", "--type=merge", '--patch={"spec":{"suspend":true}}', kubeconfig=owner)
        bare.kubectl("delete", "ddp", "digits", kubeconfig=owner)

        install_type(bare)
        owners = {bare.get(f"{CLUSTER_ROLES}/{role}")["metadata"]["labels"][MANAGED_BY] for role in USER_ROLES}
        assert owners == {"Helm"}, "a second install adopts them"


def test_plain_kubectl_installs_it_and_finds_nothing_to_change_afterwards(bare: Plant) -> None:
    try:
        bare.kubectl("apply", "--filename", INSTALL)
        wait_until_served(bare)
        assert bare.kubectl("diff", "--filename", INSTALL) == ""
        bare.kubectl("apply", "--filename", DIGITS)
        pods = f"/api/v1/namespaces/{NAMESPACE}/pods"
        bare.wait("pods, which restricted Pod Security has to admit", lambda: len(bare.get(pods)["items"]) == 2)
    finally:
        bare.kubectl("delete", "--ignore-not-found", "--filename", INSTALL)


def test_helm_takes_over_what_kubectl_has_installed_and_restarts_no_operator(bare: Plant) -> None:
    with installed(bare):
        for release in (RELEASE, CLUSTER_RELEASE):
            helm("uninstall", release, "--namespace", NAMESPACE, plant=bare)
        forget_the_type(bare)
        bare.kubectl("apply", "--filename", INSTALL)
        wait_until_served(bare)
        bare.kubectl("rollout", "status", f"deployment/{RELEASE}", f"--namespace={NAMESPACE}")
        pods = names_of_pods(bare)
        with pytest.raises(HelmError, match="invalid ownership metadata"):
            helm("install", RELEASE, CHART, "--namespace", NAMESPACE, plant=bare)
        for release, chart in ((CLUSTER_RELEASE, CLUSTER_CHART), (RELEASE, CHART)):
            helm("install", release, chart, *ADOPTING, "--force-conflicts", plant=bare)
        bare.kubectl("rollout", "status", f"deployment/{RELEASE}", f"--namespace={NAMESPACE}")
        assert names_of_pods(bare) == pods


def names_of_pods(plant: Plant) -> list[str]:
    """The operator's pods."""
    return plant.kubectl("get", "pods", f"--namespace={NAMESPACE}", "--selector", OURS, "--output", "name").split()


def test_who_may_edit_may_run_jobs_and_who_may_view_may_see_them(bare: Plant) -> None:
    with installed(bare):
        editor, viewer, stranger = (bare.kubeconfig_for(name) for name in ("editor", "viewer", "stranger"))
        bind(bare, "editor", "edit")
        bind(bare, "viewer", "view")
        bare.kubectl("create", "--filename", DIGITS, kubeconfig=editor)
        assert "digits" in bare.kubectl("get", "ddp", kubeconfig=viewer)
        status = ["--subresource=status", "--type=merge", '--patch={"status":{}}']
        for who, words in (
            (viewer, ["create", "--filename", DIGITS]),
            (viewer, ["delete", "ddpjob", "digits"]),
            (stranger, ["get", "ddpjob", "digits"]),
            (editor, ["patch", "ddpjob", "digits", *status]),
        ):
            with pytest.raises(PlantError, match=f'User "{who.stem}" cannot'):
                bare.kubectl(*words, kubeconfig=who)
        bare.kubectl("delete", "ddpjob", "digits", kubeconfig=editor)


def test_the_command_does_all_that_it_can_for_users_who_have_nothing_but_a_role_of_the_chart(bare: Plant) -> None:
    with installed(bare):
        for user in ("edit", "view"):
            role = f"--clusterrole=ddpjob-{user}"
            bare.kubectl("create", "rolebinding", f"only-{user}", role, f"--user=only-{user}", "--namespace=default")
        bare.wait("rights", lambda: ddpjob(bare, "only-view", "status")[0] == 0)
        assert ddpjob(bare, "only-edit", "submit", DIGITS)[0] == 0
        for user in ("only-edit", "only-view"):
            code, printed = ddpjob(bare, user, "status", "digits")
            assert (code, "not shown" in printed) == (0, False), printed
            assert ddpjob(bare, user, "logs", "digits") == (0, f"ddpjob: nothing has started yet: {UNNOTICED}\n")
        code, printed = ddpjob(bare, "only-view", "delete", "digits")
        assert (code, "Ask for the ClusterRole ddpjob-edit" in printed) == (1, True), printed
        for command in (("suspend",), ("scale", "--nodes=3"), ("delete",)):
            code, printed = ddpjob(bare, "only-edit", *command, "digits")
            assert code == 0, printed


def ddpjob(plant: Plant, user: str, *arguments: str | Path) -> tuple[int, str]:
    """Calls the command as somebody: exit code, and all that it printed."""
    environment = os.environ | plant.environment(plant.kubeconfig_for(user))
    words = [Path(sys.executable).with_name("ddpjob"), *arguments, "--namespace=default"]
    done = subprocess.run(
        words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    return done.returncode, done.stdout


@pytest.mark.parametrize(
    ("values", "namespaces"),
    [
        pytest.param((), {"default", "kube-public", NAMESPACE}, marks=pytest.mark.full(EVERYWHERE), id="everywhere"),
        pytest.param(("namespaces={default}",), {"default"}, id="in one namespace"),
    ],
)
def test_the_operator_may_do_what_its_rules_say_and_no_more(
    bare: Plant, values: tuple[str, ...], namespaces: set[str]
) -> None:
    rules = rights(named(render())["ClusterRole", RELEASE]["rules"])
    roles = (named(render())["ClusterRole", f"{RELEASE}-{part}"]["rules"] for part in ("nodes", "kueue"))
    of_the_cluster = set[Right]() if values else set[Right]().union(*map(rights, roles))
    own = set().union(
        *(rights(named(render())["Role", f"{RELEASE}-{part}"]["rules"]) for part in ("lease", "defaults"))
    )
    with installed(bare, *values):
        operator = bare.kubeconfig_for_service_account(NAMESPACE, RELEASE)
        anyone = bare.kubeconfig_for_service_account("kube-public", "default")
        for namespace in ("default", "kube-public", NAMESPACE):
            expected = (rules if namespace in namespaces else set()) | (own if namespace == NAMESPACE else set())
            expected |= of_the_cluster
            assert allowed(bare, operator, namespace) - allowed(bare, anyone, namespace) == expected, namespace


def allowed(plant: Plant, kubeconfig: Path, namespace: str) -> set[Right]:
    """What the API server says that somebody may do in a namespace."""
    question = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectRulesReview",
        "spec": {"namespace": namespace},
    }
    words = ["create", "--filename=-", "--output=json", "--validate=false"]  # To validate, kubectl would list CRDs.
    answer = plant.kubectl(*words, input=json.dumps(question), kubeconfig=kubeconfig)
    return rights(json.loads(answer)["status"]["resourceRules"])


def test_the_api_server_says_who_may_read_the_metrics(bare: Plant) -> None:
    with installed(bare, "metrics.auth=true"):
        for name in ("prometheus", "stranger"):
            bare.kubectl("create", "serviceaccount", name, "--namespace=default")
        role, account = f"--clusterrole={RELEASE}-metrics-reader", "--serviceaccount=default:prometheus"
        bare.kubectl("create", "clusterrolebinding", "reads-metrics", role, account)
        asked_by = bare.kubeconfig_for_service_account(NAMESPACE, RELEASE)
        tokens = {name: bare.kubectl("create", "token", name).strip() for name in ("prometheus", "stranger")}
        tokens |= {"nobody": "made-up"}
        with an_operator(bare, "--metrics-auth", "--no-leader-elect", kubeconfig=asked_by) as operator:
            read = {name: operator.get("/metrics", Authorization=f"Bearer {token}") for name, token in tokens.items()}
            read |= {"": operator.get("/metrics")}
        assert {name: code for name, (code, _) in read.items()} == {
            "prometheus": 200,
            "stranger": 403,
            "nobody": 401,
            "": 401,
        }
        assert [name for name, (_, page) in read.items() if "ddpjob_leader" in page] == ["prometheus"]
    bare.kubectl("delete", "clusterrolebinding", "reads-metrics")


def rights(rules: list[dict[str, Any]]) -> set[Right]:
    return {
        (f"{resource}.{group}".rstrip("."), name, verb)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for name in rule.get("resourceNames") or ["*"]
        for verb in rule["verbs"]
    }
