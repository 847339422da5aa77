"""Jobs where others' policies hold: the page on policies says what to set, and what a refused user reads."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.plant import Plant
from tests.support import foreign_policies
from tests.support.foreign_policies import POLICIES, REGISTRY, label
from tests.support.jobs import FOR_LONG, Team, a_job, condition
from tests.support.waiting import wait_for

ROOM = {"cpu": "1", "memory": "2Gi", "ephemeral-storage": "1Gi"}
RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}
BY_ITSELF = (
    *("require-run-as-nonroot", "require-drop-all", "disallow-host-path", "restrict-automount-sa-token"),
    *("prevent-bare-pods", "secrets-not-from-env-vars", "restrict-services"),
)
"""The policies that any job meets without a setting."""
Change = Callable[[dict[str, Any]], Any]
"""Changes the spec of a pod template."""


@pytest.fixture(scope="module", autouse=True)
def _policies(fake: Plant) -> Iterator[None]:
    """The policies, which hold in the namespaces that have their labels."""
    foreign_policies.hold(fake)
    yield
    foreign_policies.forget(fake)


@pytest.fixture
def strict(team: Team) -> Team:
    """A namespace in which all policies hold, and the restricted standard."""
    return with_policies(team, *POLICIES)


def with_policies(team: Team, *policies: str) -> Team:
    """Another namespace of the same cluster, in which these policies hold, and the restricted standard."""
    return Team(team.plant, team.plant.new_namespace(**RESTRICTED, **{label(policy): "" for policy in policies}))


def a_fitting_job(**spec: Any) -> dict[str, Any]:
    """A job of two nodes that every policy admits."""
    job = a_job(**spec)
    template = job["spec"]["template"]
    template["metadata"].setdefault("labels", {})["app.kubernetes.io/name"] = "digits"
    template["spec"]["securityContext"] = {"runAsUser": 10001, "runAsGroup": 10001, "fsGroup": 10001}
    template["spec"]["containers"][0] |= {
        "image": f"{REGISTRY}trainer:1.0",
        "resources": {"requests": ROOM, "limits": ROOM},
        "securityContext": {"readOnlyRootFilesystem": True},
        "readinessProbe": {"httpGet": {"path": "/healthz", "port": 29501}},
    }
    return job


def on_trainer(**fields: Any) -> Change:
    return lambda template: template["containers"][0].update(fields)


def on_pod(**fields: Any) -> Change:
    return lambda template: template.update(fields)


def lacks(resource: str) -> Change:
    """The trainer names no amount of this resource."""
    rest = {name: amount for name, amount in ROOM.items() if name != resource}
    return on_trainer(resources={"requests": rest, "limits": rest})


BREACHES: dict[str, Change] = {
    "require-requests-limits": lacks("cpu"),
    "memory-requests-equal-limits": on_trainer(resources={"requests": ROOM | {"memory": "1Gi"}, "limits": ROOM}),
    "require-ephemeral-storage-limits": lacks("ephemeral-storage"),
    "disallow-latest-tag": on_trainer(image=f"{REGISTRY}trainer"),
    "restrict-image-registries": on_trainer(image="docker.io/trainer:1.0"),
    "require-ro-rootfs": on_trainer(securityContext={}),
    "allowed-users": on_pod(securityContext={}),
    "require-pod-probes": lambda template: template["containers"][0].pop("readinessProbe"),
    "restrict-automount-sa-token": on_pod(automountServiceAccountToken=True),
    "secrets-not-from-env-vars": on_trainer(
        env=[{"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "token", "key": "token"}}}]
    ),
}
"""A change of a fitting job that each policy refuses."""


def test_a_job_with_what_the_page_says_gets_its_pods_where_all_policies_hold(strict: Team) -> None:
    strict.apply(
        a_limit_range(max=ROOM, min={"cpu": "100m"}),
        a_quota("full", {"pods": 2, "services": 1, "secrets": 1, "requests.cpu": 2, "limits.memory": "4Gi"}),
        a_fitting_job(),
    )
    status = strict.wait("Succeeded", seconds=90)
    assert (status["attempt"], strict.events()["Blocked"]) == (1, 0)


def test_a_job_without_any_setting_meets_every_policy_that_the_page_lists_so(team: Team) -> None:
    here = with_policies(team, *BY_ITSELF)
    here.apply(a_job())
    assert (here.wait("Succeeded")["attempt"], here.events()["Blocked"]) == (1, 0)


@pytest.mark.parametrize("policy", BREACHES)
def test_who_is_refused_reads_which_policy_it_was_and_what_it_demands(strict: Team, policy: str) -> None:
    job = a_fitting_job()
    BREACHES[policy](job["spec"]["template"]["spec"])
    strict.apply(job)
    said = strict.condition("Blocked")
    assert said["reason"] == "PolicyDenied", said
    sentence = (
        f"ValidatingAdmissionPolicy '{policy}' with binding '{policy}' denied request: {POLICIES[policy].message}"
    )
    assert sentence in said["message"]


def test_a_label_that_is_demanded_of_pods_is_missed_and_then_given_by_the_template(strict: Team) -> None:
    job = a_fitting_job()
    del job["spec"]["template"]["metadata"]["labels"]
    strict.apply(job)
    assert POLICIES["require-labels"].message in strict.condition("Blocked")["message"]
    strict.change(suspend=True)
    strict.apply(a_fitting_job(suspend=False))
    assert strict.wait("Succeeded", seconds=90)["restarts"] == 0


def test_a_job_whose_disruption_budget_is_refused_runs_and_says_that_drains_do_not_wait(strict: Team) -> None:
    strict.apply(a_fitting_job(annotations=FOR_LONG, disruption="AfterCheckpoint"))
    strict.wait("Running")
    words = "spec.disruption has no effect: "
    wait_for("the message", lambda: words in strict.status()["message"], story=strict.status)
    assert POLICIES["pdb-maxunavailable"].message in strict.status()["message"]
    assert strict.all("poddisruptionbudgets") == []


def a_limit_range(**limits: Any) -> dict[str, Any]:
    limit = {"type": "Container", **limits}
    return {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "limits"}, "spec": {"limits": [limit]}}


def a_quota(name: str, hard: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": name}, "spec": {"hard": hard}}


QUOTAS = {
    "pods": ("1", "2"),
    "services": ("0", "1"),
    "secrets": ("0", "1"),
    "count/networkpolicies.networking.k8s.io": ("0", "1"),
    "requests.cpu": ("1", "2"),
    "requests.memory": ("3Gi", "4Gi"),
    "limits.cpu": ("1", "2"),
    "limits.memory": ("3Gi", "4Gi"),
    "requests.ephemeral-storage": ("1Gi", "2Gi"),
}
"""Of each count: a quota that is too small for a fitting job of two nodes, and the smallest that has room for it."""


@pytest.mark.parametrize(("resource", "few", "enough"), [(name, *limits) for name, limits in QUOTAS.items()])
def test_a_quota_says_which_count_it_refuses_and_what_a_job_needs_is_what_the_page_says(
    team: Team, resource: str, few: str, enough: str
) -> None:
    team.limit(resource, few)
    team.apply(a_fitting_job())
    said = team.condition("Blocked")
    assert said["reason"] == "QuotaExceeded", said
    assert f"exceeded quota: {resource.replace('/', '.')}, requested: {resource}=" in said["message"]
    team.limit(resource, enough)
    status = team.wait("Succeeded", seconds=90)
    assert condition(status, "Blocked")["status"] == "False"


@pytest.mark.parametrize("resource", ["secrets", "services"])
def test_a_job_that_uses_up_a_quota_starts_again_within_it(team: Team, resource: str) -> None:
    team.limit(resource, 1)
    team.apply(a_job(annotations=FOR_LONG))
    team.wait("Running")
    team.fails(1)
    team.until("{.status.attempt}=2")
    team.wait("Running")
    assert team.events()["Blocked"] == 0
