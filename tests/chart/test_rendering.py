"""What the chart makes of its values, as far as no cluster is needed to see it."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from ddpjob_operator.api import PodSecurity, job_file
from ddpjob_operator.api.contract import DEFAULT_STATUS_PORT, MANAGER, TRAINER_CONTAINER, Label
from ddpjob_operator.api.crd import crd
from ddpjob_operator.api.defaults import read_defaults
from ddpjob_operator.api.schema import defaults_schema
from ddpjob_operator.cluster.followed_defaults import DATA_KEY
from ddpjob_operator.cluster.kube.rights import (
    DEFAULTS_RIGHTS,
    EVENT_RIGHTS,
    FEATURE_RIGHTS,
    KUEUE_CLUSTER_RIGHTS,
    LABELS_RIGHTS,
    LEASE_RIGHTS,
    MARK_RIGHTS,
    METRICS_RIGHTS,
    NAMESPACE_RIGHTS,
    NODE_RIGHTS,
    OWNER_RIGHTS,
    RIGHTS,
)
from ddpjob_operator.cluster.options import parse

from tests.plant import build
from tests.support.dashboards import DASHBOARDS
from tests.support.helm import (
    CHART,
    CLUSTER_CHART,
    NAMESPACE,
    RELEASE,
    ROOT,
    HelmError,
    helm,
    named,
    render,
    settings,
    user_role,
)

DEPLOYMENT = ("Deployment", RELEASE)
ACCOUNT = f"system:serviceaccount:{NAMESPACE}:{RELEASE}"


def template(*values: str, chart: Path = CHART) -> Any:
    return named(render(*values, chart=chart))[DEPLOYMENT]["spec"]["template"]


def test_helm_finds_nothing_to_complain_of() -> None:
    assert "2 chart(s) linted, 0 chart(s) failed" in helm("lint", "--strict", CLUSTER_CHART, CHART)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("replica=2", "at '': additional properties 'replica' not allowed"),
        ("image.name=x", "at '/image': additional properties 'name' not allowed"),
        ("rbac.node=false", "at '/rbac': additional properties 'node' not allowed"),
        ("replicas=two", "at '/replicas': got string, want integer"),
        ("podSecurity=Restricted", "at '/podSecurity': value must be one of 'restricted', 'none'"),
        ("log.level=verbose", "at '/log/level': value must be one of 'debug', 'info', 'warning', 'error'"),
        ("namespaces={Team}", "at '/namespaces/0': 'Team' does not match pattern"),
        ("namespaces={blue},namespaceSelector=team=blue", "namespaceSelector: namespaces are named already"),
        ("serviceAccount.create=false", "serviceAccount.name: name the account to use, or let the chart make one"),
        ("podLabels.app\\.kubernetes\\.io/name=x", "podLabels: app.kubernetes.io/name selects the operator's pods"),
        (
            "podLabels.app\\.kubernetes\\.io/instance=x",
            "podLabels: app.kubernetes.io/instance selects the operator's",
        ),
        ("jobMetadata.keys={kueue.x-k8s.io/queue-name}", "jobMetadata: kueue.x-k8s.io/queue-name is reserved"),
        ("jobMetadata.labels.argocd\\.argoproj\\.io/instance=x", "jobMetadata: argocd.argoproj.io/instance is"),
        ("jobMetadata.labels.team=a/b", "at '/jobMetadata/labels/team'"),
        ("defaults[0].name=a,defaults[0].imag=x", "at '/defaults/0': additional properties 'imag' not allowed"),
        ("defaults[0].name=a,defaults[0].podSecurity=none", "at '/defaults/0/podSecurity': value must be one of"),
        ("global.registry=x", "global.registry: this chart reads imageRegistry and imagePullSecrets alone"),
        ("serviceMonitor.interval=often", "at '/serviceMonitor/interval': 'often' does not match pattern"),
        ("podMonitor.port=0", "at '/podMonitor/port': minimum: got 0, want 1"),
        (
            "prometheusRule.enabled=true,prometheusRule.disabled={DDPJobSlow}",
            "prometheusRule.disabled: there is no alert DDPJobSlow; the alerts are DDPJobStalled, ",
        ),
        ("global.imageRegistry=7", "at '/global/imageRegistry': got number, want string"),
        ("image.digest=sha256:1", "at '/image/digest': 'sha256:1' does not match pattern"),
        ("image.repository=a.example.com/operator:1", "at '/image/repository': 'a.example.com/operator:1' does not"),
        (
            "image.registry=a.example.com,image.repository=b.example.com/operator",
            "image.registry: image.repository begins with a registry already, b.example.com",
        ),
        (
            "commonLabels.app\\.kubernetes\\.io/name=x",
            "commonLabels: app.kubernetes.io/name selects the operator's pods",
        ),
        (
            "commonLabels.app\\.kubernetes\\.io/version=x",
            "commonLabels: app.kubernetes.io/version is set by the chart",
        ),
        ("env[0].value=x", "at '/env/0': missing property 'name'"),
        ("env[0].name=POD_NAMESPACE", "env: POD_NAMESPACE is set by the chart; leave it out"),
        ("extraObjects[0].kind=ConfigMap", "at '/extraObjects/0': missing properties 'apiVersion', 'metadata'"),
        ("topologySpreadConstraints[0].maxSkew=1", "at '/topologySpreadConstraints/0': missing properties"),
        ("strategy.type=Canary", "at '/strategy/type': value must be one of 'RollingUpdate', 'Recreate'"),
        ("podDisruptionBudget.maxUnavailable=half", "at '/podDisruptionBudget/maxUnavailable'"),
        ("class=can ary", "at '/class': 'can ary' does not match pattern"),
        ("hostNetwork=true", "at '': additional properties 'hostNetwork' not allowed"),
        ("crds.keep=false", "crds: the DDPJob type and its users' roles are in the chart ddpjob-cluster now"),
        ("rbac.userRoles=false", "leave this value out with --set rbac.userRoles=null"),
        ("rbac.debugRole=true", "rbac.debugRole: the DDPJob type and its users' roles are in the chart"),
    ],
)
def test_a_wrong_value_is_refused_with_its_place(value: str, said: str) -> None:
    with pytest.raises(HelmError) as refused:
        render(value)
    assert said in str(refused.value)


LIMIT = "guards.limits[0].name=a,guards.limits[0].namespaceSelector.matchLabels.a=b"
EXPRESSION = "matchExpressions[0].key=a,guards.limits[0].namespaceSelector.matchExpressions[0].operator=in"
TWICE = "guards.limits: two are named a, and only one of them would hold; give each a name of its own"


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("guard=true", "at '': additional properties 'guard' not allowed"),
        ("guards.pods=true", "at '/guards': additional properties 'pods' not allowed"),
        ("operators={a b}", "at '/operators/0': 'a b' does not match pattern"),
        ("operators={ddpjob-system/ddpjob-operator}", "does not match pattern '^system:serviceaccount:"),
        ("guards.podLabels.alsoAllowed={a b}", "at '/guards/podLabels/alsoAllowed/0': 'a b' does not match pattern"),
        ("guards.limits[0].maxNodes=2", "at '/guards/limits/0': missing properties 'name', 'namespaceSelector'"),
        (f"{LIMIT},guards.limits[0].maxNode=2", "at '/guards/limits/0': additional properties 'maxNode' not allowed"),
        (
            f"{LIMIT},guards.limits[0].hostAccess=false,{LIMIT.replace('[0]', '[1]')},guards.limits[1].maxNodes=2",
            TWICE,
        ),
        (
            f"{LIMIT.replace('matchLabels.a=b', EXPRESSION)},guards.limits[0].maxNodes=2",
            "operator': value must be one of 'In', 'NotIn', 'Exists', 'DoesNotExist'",
        ),
        (f"{LIMIT},guards.limits[0].registries={{a.example.com}}", "'a.example.com' does not match pattern"),
        ("keep=no", "at '/keep': got string, want boolean"),
        ("commonLabels.app\\.kubernetes\\.io/name=x", "commonLabels: app.kubernetes.io/name is set by the chart"),
    ],
)
def test_a_wrong_value_of_the_cluster_is_refused_with_its_place(value: str, said: str) -> None:
    with pytest.raises(HelmError) as refused:
        render(value, chart=CLUSTER_CHART)
    assert said in str(refused.value)


@pytest.mark.parametrize("chart", [CHART, CLUSTER_CHART], ids=["operator", "cluster"])
def test_every_value_has_a_schema_and_every_schema_a_value(chart: Path) -> None:
    values = yaml.safe_load((chart / "values.yaml").read_text())
    schema = yaml.safe_load((chart / "values.schema.json").read_text())
    assert described(schema) - {"global"} == {*values} - {"global"}
    for name, value in values.items():
        if schema["properties"][name].get("additionalProperties") is False:
            assert described(schema["properties"][name]) == {*value}, name


def described(schema: dict[str, Any]) -> set[str]:
    """The values that a schema describes, apart from those that the chart had once, and refuses with a sentence."""
    return {name for name, value in schema["properties"].items() if not value.get("deprecated")}


@pytest.mark.parametrize("chart", [CHART, CLUSTER_CHART], ids=["operator", "cluster"])
def test_an_old_kubernetes_is_refused(chart: Path) -> None:
    with pytest.raises(HelmError, match="requires kubeVersion"):
        helm("template", chart, "--kube-version", "1.29.9")


def test_the_type_is_the_one_that_the_code_describes() -> None:
    objects = named(render(chart=CLUSTER_CHART))
    assert objects["CustomResourceDefinition", "ddpjobs.ddpjob.dev"]["spec"] == crd()["spec"]
    assert crd()["metadata"] == {"name": "ddpjobs.ddpjob.dev"}


@pytest.mark.parametrize(
    ("chart", "values", "told", "untold"),
    [
        (
            CHART,
            (),
            ("kubectl get ddpjobs --watch", "type and all DDPJobs alone", f"serviceaccount:{NAMESPACE}:{RELEASE}\n"),
            ("for the namespaces",),
        ),
        (CHART, ("namespaces={blue,red}",), ("for the namespaces blue, red", "apply --namespace blue --f"), ()),
        (CHART, ("namespaceSelector=team=blue",), ("for namespaces with team=blue",), ("--namespace blue",)),
        (CHART, ("replicas=0",), ("with replicas=0 no job runs",), ("rollout status", "kubectl apply")),
        (
            CLUSTER_CHART,
            ("operators={system:serviceaccount:ours:one}",),
            ("these accounts as operators:\n\n  system:serviceaccount:ours:one\n",),
            (f":{NAMESPACE}:",),
        ),
        (CHART, (), (f"helm install ddpjob-cluster charts/ddpjob-cluster --namespace {NAMESPACE}\n",), ()),
        (CLUSTER_CHART, (), ("all DDPJobs and the roles of their users",), ("An uninstall removes",)),
        (CLUSTER_CHART, ("userRoles=false",), ("keeps the DDPJob type and all DDPJobs",), ("roles",)),
        (CLUSTER_CHART, ("keep=false",), ("removes the DDPJob type, and with it every DDPJob",), ("keeps",)),
    ],
)
def test_after_an_install_helm_tells_what_is_true_of_it(
    chart: Path, values: tuple[str, ...], told: tuple[str, ...], untold: tuple[str, ...]
) -> None:
    said = helm("install", RELEASE, chart, "--dry-run=client", "--namespace", NAMESPACE, *settings(values))
    notes = said.partition("NOTES:")[2]
    assert [words for words in told if words not in notes] == []
    assert [words for words in untold if words in notes] == []


def test_what_artifact_hub_shows_is_the_type_and_the_image_of_the_charts() -> None:
    shown = {
        name.removeprefix("artifacthub.io/"): text
        for chart in (CHART, CLUSTER_CHART)
        for name, text in yaml.safe_load((chart / "Chart.yaml").read_text())["annotations"].items()
    }
    (kind,) = yaml.safe_load(shown["crds"])
    assert (kind["kind"], kind["name"]) == (crd()["spec"]["names"]["kind"], crd()["metadata"]["name"])
    assert kind["version"] in {version["name"] for version in crd()["spec"]["versions"] if version["served"]}
    (image,) = yaml.safe_load(shown["images"])
    assert image["image"] == template()["spec"]["containers"][0]["image"]
    for example in yaml.safe_load(shown["crdsExamples"]):
        job_file.parse(yaml.safe_dump(example), "crdsExamples")


@pytest.mark.parametrize("of", [CHART, CLUSTER_CHART], ids=["operator", "cluster"])
def test_a_chart_has_the_version_of_the_project(of: Path) -> None:
    chart = yaml.safe_load((of / "Chart.yaml").read_text())
    project = next(line for line in (ROOT / "pyproject.toml").read_text().splitlines() if line.startswith("version"))
    assert project == f'version = "{chart["appVersion"]}"' == f'version = "{chart["version"]}"'


OF_THE_TYPE = (
    ("CustomResourceDefinition", "ddpjobs.ddpjob.dev"),
    ("ClusterRole", "ddpjob-edit"),
    ("ClusterRole", "ddpjob-view"),
)


@pytest.mark.parametrize(("keep", "kept"), [("true", {*OF_THE_TYPE}), ("false", set[tuple[str, str]]())])
def test_the_type_and_the_roles_of_its_users_outlive_the_release_if_they_are_to_and_nothing_else_does(
    keep: str, kept: set[tuple[str, str]]
) -> None:
    policies = {
        name: one["metadata"].get("annotations", {}).get("helm.sh/resource-policy")
        for name, one in named([*render(f"keep={keep}", "debugRole=true", chart=CLUSTER_CHART), *render()]).items()
    }
    assert {name for name, policy in policies.items() if policy == "keep"} == kept


def test_the_cluster_has_its_type_without_pods_and_all_else_can_be_left_out() -> None:
    guards = {
        (f"ValidatingAdmissionPolicy{binding}", f"ddpjob-{name}")
        for binding in ("", "Binding")
        for name in ("pod-labels", "operators")
    }
    assert {*named(render(chart=CLUSTER_CHART))} == {*OF_THE_TYPE} | guards
    off = ("userRoles=false", "guards.podLabels.enabled=false", "guards.operators.enabled=false")
    assert {*named(render(*off, chart=CLUSTER_CHART))} == {*OF_THE_TYPE[:1]}


def test_a_limit_that_allows_none_of_a_kind_says_to_leave_it_out() -> None:
    none = ("--set", LIMIT, "--set-json", "guards.limits[0].runtimeClasses=[]")
    assert "allows: leave it out'" in helm("template", CLUSTER_CHART, *none)


def test_the_guards_know_the_operator_that_is_installed_as_the_page_says() -> None:
    assert named(render())["ServiceAccount", RELEASE]["metadata"]["namespace"] == NAMESPACE
    assert yaml.safe_load((CLUSTER_CHART / "values.yaml").read_text())["operators"] == [ACCOUNT]


def test_the_role_to_run_programs_in_pods_is_made_only_on_request_and_added_to_no_other() -> None:
    assert ("ClusterRole", "ddpjob-debug") not in named(render(chart=CLUSTER_CHART))
    role = named(render("debugRole=true", chart=CLUSTER_CHART))["ClusterRole", "ddpjob-debug"]
    assert verbs(role) == {("", "pods/exec"): {"get", "create"}, ("", "pods/portforward"): {"get", "create"}}
    assert not [label for label in role["metadata"]["labels"] if "aggregate" in label]


def test_each_of_the_two_roles_of_users_is_enough_for_the_command() -> None:
    edit, view = (verbs(user_role(name)) for name in ("ddpjob-edit", "ddpjob-view"))
    look = {
        ("ddpjob.dev", "ddpjobs"): {"get", "list", "watch"},
        ("", "pods"): {"get", "list", "watch"},
        ("", "pods/log"): {"get"},
        ("", "events"): {"list"},
    }
    change = {
        ("ddpjob.dev", "ddpjobs"): {"create", "update", "patch", "delete"},
        ("ddpjob.dev", "ddpjobs/scale"): {"patch"},
        ("", "configmaps"): {"get", "list", "create", "patch", "delete"},
    }
    for name, role, needed in (("edit", edit, change), ("edit", edit, look), ("view", view, look)):
        lacking = {what: words - role.get(what, set()) for what, words in needed.items()}
        assert not any(lacking.values()), f"ddpjob-{name} lacks {lacking}"
    assert {verb for words in view.values() for verb in words} == {"get", "list", "watch"}, "it only looks"


def test_in_chosen_namespaces_it_has_the_same_rights_and_elsewhere_none() -> None:
    everywhere = named(render())["ClusterRole", RELEASE]["rules"]
    chosen = render("namespaces={blue,green}")
    roles = [one for one in chosen if one["kind"] == "Role" and one["metadata"]["name"] == RELEASE]
    assert {one["metadata"]["namespace"]: one["rules"] for one in roles} == {"blue": everywhere, "green": everywhere}
    bindings = [one for one in chosen if one["kind"] == "RoleBinding" and one["roleRef"]["name"] == RELEASE]
    assert {one["metadata"]["namespace"] for one in bindings} == {"blue", "green"}
    assert not [one for one in chosen if one["kind"].startswith("Cluster")], "rights in the whole cluster"
    flags = template("namespaces={blue,green}")["spec"]["containers"][0]["args"]
    assert [flag for flag in flags if "namespace" in flag] == ["--namespace=blue", "--namespace=green"]


@pytest.mark.parametrize("part", ["nodes", "kueue"])
def test_a_right_in_the_whole_cluster_is_given_where_its_value_says_so_and_else_to_who_has_all_namespaces(
    part: str,
) -> None:
    role, chosen = ("ClusterRole", f"{RELEASE}-{part}"), "namespaces={blue}"
    given = [
        role in named(render(*values)) for values in ((), (f"rbac.{part}=false",), (chosen, f"rbac.{part}=true"))
    ]
    assert given == [True, False, True]


def test_where_a_selector_chooses_namespaces_it_may_also_watch_them_and_everywhere_the_rest() -> None:
    chosen = "namespaceSelector=team in (blue\\,green)"
    role = verbs(named(render(chosen))["ClusterRole", RELEASE])
    without = verbs(named(render())["ClusterRole", RELEASE])
    more = {*NAMESPACE_RIGHTS["", "namespaces"], *LABELS_RIGHTS["", "namespaces"]}
    assert (role.pop(("", "namespaces")), without.pop(("", "namespaces"))) == (more, {"get"})
    assert role == without
    options = parse(template(chosen)["spec"]["containers"][0]["args"])
    assert (options.namespace_selector, options.namespaces) == ("team in (blue,green)", [])


def test_it_has_the_rights_that_the_operator_asks_for() -> None:
    objects = named(render("metrics.auth=true"))
    always = (RIGHTS, MARK_RIGHTS, OWNER_RIGHTS, EVENT_RIGHTS, LABELS_RIGHTS)
    everywhere = (*always, *FEATURE_RIGHTS.values())
    asked = [(key, verb) for some in everywhere for key, words in some.items() for verb in words]
    granted = [(key, verb) for key, words in verbs(objects["ClusterRole", RELEASE]).items() for verb in words]
    assert sorted(granted) == sorted(asked)
    for part, own in (("lease", LEASE_RIGHTS), ("defaults", DEFAULTS_RIGHTS)):
        role = objects["Role", f"{RELEASE}-{part}"]
        assert verbs(role) == {key: set(words) for key, words in own.items()}
        assert role["metadata"]["namespace"] == NAMESPACE
    for part, rights in (("nodes", NODE_RIGHTS), ("kueue", KUEUE_CLUSTER_RIGHTS), ("metrics", METRICS_RIGHTS)):
        assert verbs(objects["ClusterRole", f"{RELEASE}-{part}"]) == {
            key: set(words) for key, words in rights.items()
        }


def verbs(role: dict[str, Any]) -> dict[tuple[str, str], set[str]]:
    found: dict[tuple[str, str], set[str]] = {}
    for rule in role["rules"]:
        for resource in rule["resources"]:
            found.setdefault((rule["apiGroups"][0], resource), set()).update(rule["verbs"])
    return found


def test_the_defaults_are_in_the_config_map_that_the_operator_follows(tmp_path: Path) -> None:
    entries = [{"name": "all", "env": [{"name": "A", "value": "1"}]}, {"name": "blue", "ttlSecondsAfterFinished": 0}]
    values = tmp_path / "values.yaml"
    values.write_text(yaml.safe_dump({"defaults": entries}))
    objects = named([*yaml.safe_load_all(helm("template", RELEASE, CHART, "--namespace", NAMESPACE, "-f", values))])
    name = f"{RELEASE}-defaults"
    assert yaml.safe_load(objects["ConfigMap", name]["data"][DATA_KEY]) == entries
    assert [entry.name for entry in read_defaults(objects["ConfigMap", name]["data"][DATA_KEY], "")] == [
        "all",
        "blue",
    ]
    assert read_defaults(named(render())["ConfigMap", name]["data"][DATA_KEY], "") == ()
    arguments = objects[DEPLOYMENT]["spec"]["template"]["spec"]["containers"][0]["args"]
    assert f"--defaults={name}" in arguments
    (rule,) = (one for one in objects["Role", name]["rules"] if one["resources"] == ["configmaps"])
    assert rule["resourceNames"] == [name]
    assert objects[DEPLOYMENT] == named(render())[DEPLOYMENT], (
        "a change of defaults replaces no pod of the operator's"
    )


def test_the_values_have_the_fields_of_an_entry() -> None:
    known = json.loads((CHART / "values.schema.json").read_text())["properties"]["defaults"]["items"]["properties"]
    assert known.keys() == defaults_schema()["items"]["properties"].keys()


def test_only_where_the_api_server_says_who_reads_metrics_may_the_operator_ask_it() -> None:
    bare, asking = named(render()), named(render("metrics.auth=true"))
    assert {name for kind, name in asking.keys() - bare.keys()} == {f"{RELEASE}-metrics", f"{RELEASE}-metrics-reader"}
    for objects, flagged in ((bare, False), (asking, True)):
        assert parse(objects[DEPLOYMENT]["spec"]["template"]["spec"]["containers"][0]["args"]).metrics_auth == flagged
    scraped = named(render("metrics.auth=true", "serviceMonitor.enabled=true"))["ServiceMonitor", RELEASE]
    assert "bearerTokenFile" in scraped["spec"]["endpoints"][0]


def test_objects_of_the_prometheus_operator_are_made_only_if_they_are_asked_for() -> None:
    assert not [one for one in render() if one["apiVersion"].startswith("monitoring.coreos.com/")]
    values = (f"{name}.{value}" for name in MONITORS for value in ("enabled=true", "labels.release=prometheus"))
    made = [one for one in render(*values) if one["apiVersion"] == "monitoring.coreos.com/v1"]
    assert [one["kind"].casefold() for one in made] == [name.casefold() for name in sorted(MONITORS)]
    assert {one["metadata"]["labels"]["release"] for one in made} == {"prometheus"}


MONITORS = ("serviceMonitor", "podMonitor", "prometheusRule")


def test_the_monitors_say_how_often_and_for_how_long() -> None:
    often = (f"{name}.{value}" for name in MONITORS[:2] for value in ("enabled=true", "interval=15s"))
    objects = named(render(*often, "podMonitor.scrapeTimeout=7s"))
    (operator,) = objects["ServiceMonitor", RELEASE]["spec"]["endpoints"]
    (supervisors,) = objects["PodMonitor", f"{RELEASE}-supervisors"]["spec"]["podMetricsEndpoints"]
    assert (operator["interval"], operator.get("scrapeTimeout")) == ("15s", None)
    assert (supervisors["interval"], supervisors["scrapeTimeout"]) == ("15s", "7s")


def test_prometheus_finds_the_supervisors_of_a_jobs_pods_and_knows_the_job() -> None:
    spec = named(render("podMonitor.enabled=true"))["PodMonitor", f"{RELEASE}-supervisors"]["spec"]
    selector, (endpoint,) = spec["selector"], spec["podMetricsEndpoints"]
    assert selector["matchLabels"] == {Label.MANAGED_BY: MANAGER}
    assert [one["key"] for one in selector["matchExpressions"]] == [Label.NODE, Label.JOB_UID]
    meta = {"pod_container_init": "false", "pod_container_name": TRAINER_CONTAINER, "pod_ip": "10.0.0.7"}
    meta |= {"pod_label_ddpjob_dev_job_name": "digits"}
    assert relabelled(endpoint, **meta) == {"__address__": f"10.0.0.7:{DEFAULT_STATUS_PORT}", "job_name": "digits"}
    address = relabelled(endpoint, **meta | {"pod_ip": "fd00::7"})["__address__"]
    assert address == f"[fd00::7]:{DEFAULT_STATUS_PORT}"
    assert not relabelled(endpoint, **meta | {"pod_container_name": "sidecar"})
    assert not relabelled(endpoint, **meta | {"pod_container_init": "true"})
    assert spec["namespaceSelector"] == {"any": True}
    limited = named(render("podMonitor.enabled=true", "namespaces={blue}"))
    assert limited["PodMonitor", f"{RELEASE}-supervisors"]["spec"]["namespaceSelector"] == {"matchNames": ["blue"]}


def relabelled(endpoint: dict[str, Any], **meta: str) -> dict[str, str]:
    """The labels that Prometheus makes of a pod's; none if it drops the target."""
    labels: dict[str, str] = {}
    for rule in endpoint["relabelings"]:
        value = ";".join(meta[name.removeprefix("__meta_kubernetes_")] for name in rule["sourceLabels"])
        found = re.fullmatch(str(rule.get("regex", "(.*)")), value)
        if found and "targetLabel" in rule:
            labels[rule["targetLabel"]] = rule.get("replacement", "$1").replace("$1", found[1])
        elif not found and rule.get("action") == "keep":
            return {}
    return labels


def test_the_namespace_of_a_metric_is_the_jobs_and_not_that_of_the_operator() -> None:
    (endpoint,) = named(render("serviceMonitor.enabled=true"))["ServiceMonitor", RELEASE]["spec"]["endpoints"]
    assert endpoint["honorLabels"]


def test_each_dashboard_is_in_a_config_map_that_grafanas_sidecar_finds() -> None:
    bare = named(render())
    objects = named(render("dashboards.enabled=true", "dashboards.annotations.grafana_folder=Training"))
    added = [objects[one] for one in objects.keys() - bare.keys()]
    assert {one["kind"] for one in added} == {"ConfigMap"}
    found = {name: json.loads(text) for one in added for name, text in one["data"].items()}
    assert found == {f"ddpjob-{name}.json": dashboard for name, dashboard in DASHBOARDS.items()}
    for one in added:
        assert one["metadata"]["labels"]["grafana_dashboard"] == "1"
        assert one["metadata"]["annotations"] == {"grafana_folder": "Training"}


def test_others_may_connect_to_the_metrics_alone_from_where_the_values_say() -> None:
    pod = template()
    ports = {port["name"]: port["containerPort"] for port in pod["spec"]["containers"][0]["ports"]}
    options = parse(pod["spec"]["containers"][0]["args"])
    assert ports == {"http": options.port, "probes": options.probe_port}
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert pod["spec"]["containers"][0][probe]["httpGet"]["port"] == "probes"

    policy = "NetworkPolicy", RELEASE
    spec = named(render())[policy]["spec"]
    assert spec["ingress"] == [{"ports": [{"port": 8080}]}]
    assert spec["podSelector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
    somewhere = {"namespaceSelector": {"matchLabels": {"team": "blue"}}}
    chosen = named(render("metrics.from[0].namespaceSelector.matchLabels.team=blue"))[policy]["spec"]
    assert chosen["ingress"] == [{"ports": [{"port": 8080}], "from": [somewhere]}]
    assert policy not in named(render("metrics.networkPolicy=false"))


def test_of_leases_it_may_touch_its_own_alone() -> None:
    """Another program's lease decides who leads there."""
    for release, values in ((RELEASE, ()), ("ours", ("fullnameOverride=ours",))):
        rules = named(render(*values))["Role", f"{release}-lease"]["rules"]
        leases = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"]}
        # The right to make something cannot be bound to a name.
        assert rules == [
            {**leases, "resourceNames": [release], "verbs": ["get", "update"]},
            {**leases, "verbs": ["create"]},
        ]


def test_no_account_that_others_use_too_gets_the_operators_rights_unless_it_is_named() -> None:
    objects = named(render("serviceAccount.create=false", "serviceAccount.name=robot"))
    bound = [one["subjects"] for (kind, _), one in objects.items() if kind.endswith("Binding")]
    assert {one["name"] for subjects in bound for one in subjects} == {"robot"}
    assert objects[DEPLOYMENT]["spec"]["template"]["spec"]["serviceAccountName"] == "robot"


@pytest.mark.parametrize(
    ("values", "image"),
    [
        ((), "mirror.example.com/ddpjob-operator:v1"),
        (("image.repository=team/operator",), "mirror.example.com/team/operator:v1"),
        (("image.repository=registry.example.com/operator",), "registry.example.com/operator:v1"),
        (("image.repository=localhost:5000/operator",), "localhost:5000/operator:v1"),
    ],
)
def test_what_an_umbrella_chart_says_of_images_holds_where_ours_says_nothing(
    values: tuple[str, ...], image: str
) -> None:
    said = ("global.imageRegistry=mirror.example.com", "global.imagePullSecrets={common}", "image.tag=v1")
    pod = template(*said, "imagePullSecrets[0].name=own", *values)["spec"]
    assert pod["containers"][0]["image"] == image
    assert pod["imagePullSecrets"] == [{"name": "own"}, {"name": "common"}]


DIGEST = f"sha256:{'0' * 64}"


@pytest.mark.parametrize(
    ("values", "image"),
    [
        (("image.registry=a.example.com/mirror",), "a.example.com/mirror/ddpjob-operator:0.1.0"),
        (
            ("image.registry=a.example.com", "global.imageRegistry=b.example.com"),
            "a.example.com/ddpjob-operator:0.1.0",
        ),
        ((f"image.digest={DIGEST}",), f"ddpjob-operator:0.1.0@{DIGEST}"),
    ],
)
def test_the_image_is_the_one_of_the_named_registry_and_digest(values: tuple[str, ...], image: str) -> None:
    assert template(*values)["spec"]["containers"][0]["image"] == image


def test_common_labels_are_on_everything_and_select_nothing() -> None:
    optional = ("serviceMonitor", "podMonitor", "prometheusRule", "dashboards")
    everything = (*(f"{name}.enabled=true" for name in optional), "metrics.auth=true")
    objects = named(render(*everything, "commonLabels.team=blue", "commonLabels.cost=1x", "podLabels.cost=2x"))
    objects |= named(render("debugRole=true", "commonLabels.team=blue", chart=CLUSTER_CHART))
    assert {name for name, one in objects.items() if one["metadata"].get("labels", {}).get("team") != "blue"} == set()
    deployment = objects[DEPLOYMENT]["spec"]
    assert deployment["template"]["metadata"]["labels"].items() >= {"team": "blue", "cost": "2x"}.items()
    assert "team" not in deployment["selector"]["matchLabels"]


def test_the_operator_gets_more_variables() -> None:
    variables = ("env[0].name=SSL_CERT_FILE", "env[0].value=/ca.pem", "envFrom[0].secretRef.name=proxy")
    (container,) = template(*variables)["spec"]["containers"]
    assert [variable["name"] for variable in container["env"]] == ["POD_NAMESPACE", "SSL_CERT_FILE"]
    assert container["envFrom"] == [{"secretRef": {"name": "proxy"}}]


def test_more_objects_are_installed_and_may_name_the_release() -> None:
    head = ("extraObjects[0].apiVersion=v1", "extraObjects[0].kind=ConfigMap", "extraObjects[0].metadata.name=mine")
    objects = named(render(*head, "extraObjects[0].data.of=it is {{ .Release.Name }}"))
    assert objects["ConfigMap", "mine"]["data"] == {"of": f"it is {RELEASE}"}


def test_the_operators_pods_are_spread_over_nodes_or_as_the_values_say() -> None:
    ours = {"app.kubernetes.io/name": "ddpjob-operator", "app.kubernetes.io/instance": RELEASE}
    (usual,) = template()["spec"]["topologySpreadConstraints"]
    assert (usual["topologyKey"], usual["whenUnsatisfiable"]) == ("kubernetes.io/hostname", "ScheduleAnyway")
    assert usual["labelSelector"] == {"matchLabels": ours}
    zone = {"topologyKey": "topology.kubernetes.io/zone", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
    (chosen,) = template(*(f"topologySpreadConstraints[0].{key}={value}" for key, value in zone.items()))["spec"][
        "topologySpreadConstraints"
    ]
    assert chosen == {**zone, "labelSelector": {"matchLabels": ours}}


def test_how_the_operators_pods_are_replaced_and_evicted_is_said_by_values() -> None:
    assert "strategy" not in named(render())[DEPLOYMENT]["spec"]
    assert named(render("strategy.type=Recreate"))[DEPLOYMENT]["spec"]["strategy"] == {"type": "Recreate"}
    budget = ("PodDisruptionBudget", RELEASE)
    assert named(render())[budget]["spec"]["maxUnavailable"] == 1
    assert named(render("podDisruptionBudget.maxUnavailable=50%"))[budget]["spec"]["maxUnavailable"] == "50%"
    assert budget not in named(render("podDisruptionBudget.enabled=false"))


def test_as_a_part_of_another_chart_it_leaves_alone_what_is_said_to_the_others(tmp_path: Path) -> None:
    umbrella = tmp_path / "umbrella"
    shutil.copytree(CHART, umbrella / "charts" / "ddpjob-operator")
    (umbrella / "Chart.yaml").write_text("apiVersion: v2\nname: umbrella\nversion: 1.0.0\n")
    (umbrella / "values.yaml").write_text("global: {clusterName: blue, imagePullSecrets: [{name: common}]}\n")
    objects = named(render(chart=umbrella))
    pod = objects["Deployment", RELEASE]["spec"]["template"]["spec"]
    assert pod["imagePullSecrets"] == [{"name": "common"}]


def test_the_operator_understands_the_flags() -> None:
    values = (
        "namespaces={blue}",
        "podSecurity=none",
        "networkPolicy=disabled",
        "gpuResources={nvidia.com/gpu.shared,example.com/gpu-}",
        "jobMetadata.labels.team=vision",
        "jobMetadata.labels.example\\.com/tier=",
        "jobMetadata.keys={example.com/owner,app.kubernetes.io/part-of}",
        "monitoringNamespace=prometheus",
        "trainerImage=registry.example.com/trainer:1",
        "log.format=text",
        "log.level=debug",
        "resyncSeconds=60",
        "clockSettlingSeconds=7",
        "drainProtectionSeconds=0",
        "avoidBrokenNodesSeconds=7",
        "class=canary",
        "fullnameOverride=ours",
    )
    deployment = named(render(*values))["Deployment", "ours"]
    options = parse(deployment["spec"]["template"]["spec"]["containers"][0]["args"])
    assert options.lease
    assert options.lease[1] == "ours"
    assert options.settings.holder == (f"{options.lease[0]}/ours", "canary")
    assert (options.namespaces, options.log_format, options.log_level) == (["blue"], "text", "debug")
    assert options.settings.pod_security == PodSecurity.NONE
    assert options.settings.gpu_resources == ("nvidia.com/gpu.shared", "example.com/gpu-")
    assert options.settings.labels == (("example.com/tier", ""), ("team", "vision"))
    assert options.settings.inherited_keys == ("example.com/owner", "app.kubernetes.io/part-of")
    assert options.settings.trainer_image == "registry.example.com/trainer:1"
    assert (options.resync_seconds, options.clock_settling_seconds) == (60, 7)
    assert (options.settings.drain_protection_seconds, options.settings.avoid_broken_nodes_seconds) == (0, 7)


@pytest.mark.parametrize(
    "values",
    [
        ("replicas=1",),
        ("rbac.nodes=false",),
        ("serviceMonitor.enabled=true", "serviceMonitor.labels.release=prometheus"),
        ("dashboards.enabled=true",),
    ],
)
def test_the_operators_pods_stay_when_something_else_changes(values: tuple[str, ...]) -> None:
    assert template(*values) == template()


def test_the_operators_pods_stay_when_the_chart_has_a_new_version_of_the_same_image(tmp_path: Path) -> None:
    newer = tmp_path / "ddpjob-operator"
    shutil.copytree(CHART, newer)
    chart = yaml.safe_load((newer / "Chart.yaml").read_text()) | {"version": "9.9.9", "appVersion": "9.9.9"}
    (newer / "Chart.yaml").write_text(yaml.safe_dump(chart))
    assert template("image.tag=0.1.0", chart=newer) == template("image.tag=0.1.0")
    assert template(chart=newer)["spec"]["containers"][0]["image"] == "ddpjob-operator:9.9.9"


def test_what_selects_the_operators_pods_finds_them() -> None:
    objects = named(render("podLabels.team=blue", "serviceMonitor.enabled=true"))
    labels = objects[DEPLOYMENT]["spec"]["template"]["metadata"]["labels"]
    assert labels["app.kubernetes.io/name"] == "ddpjob-operator", (
        "the NetworkPolicy of a job lets in who has this label"
    )
    assert labels["team"] == "blue"
    selectors = [
        objects[DEPLOYMENT]["spec"]["selector"]["matchLabels"],
        objects["Service", RELEASE]["spec"]["selector"],
        objects["PodDisruptionBudget", RELEASE]["spec"]["selector"]["matchLabels"],
    ]
    assert all(selector.items() <= labels.items() for selector in selectors)
    chosen = objects["ServiceMonitor", RELEASE]["spec"]["selector"]["matchLabels"]
    assert chosen.items() <= objects["Service", RELEASE]["metadata"]["labels"].items()


def test_install_yaml_is_both_charts_with_their_defaults() -> None:
    helm_here = {"HELM": str(build.path("helm")), "PATH": "/usr/bin:/bin"}
    printed = subprocess.run(
        [ROOT / "deploy" / "render-install"], env=helm_here, capture_output=True, text=True, check=True
    ).stdout
    assert (ROOT / "deploy" / "install.yaml").read_text() == printed, "bring it up to date with: make generate"
