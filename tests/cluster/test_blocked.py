"""What only the API server can refuse: the job says so in the server's words, and goes on once the cause is gone."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from ddpjob_operator.api import DDPJob
from ddpjob_operator.api.contract import Label
from ddpjob_operator.api.ownership import name_beside
from ddpjob_operator.engine import pod_name

from tests.plant import PlantError
from tests.support.jobs import Team, a_job, condition
from tests.support.waiting import wait_for


def blocked(team: Team) -> dict[str, Any]:
    """The condition, once it is set."""
    return team.condition("Blocked")


def goes_on(team: Team) -> None:
    """The job finishes, and says that nothing is in the way any more."""
    status = team.wait("Succeeded", seconds=90)
    assert condition(status, "Blocked")["status"] == "False"
    assert status["restarts"] == 0


def test_a_quota_that_is_met_half_way(team: Team) -> None:
    team.limit("pods", 1)
    team.apply(a_job())
    said = blocked(team)
    assert said["reason"] == "QuotaExceeded"
    assert "exceeded quota: pods, requested: pods=1, used: pods=1, limited: pods=1" in said["message"]
    assert team.status()["message"] == said["message"]
    wait_for("an event that says so", lambda: team.events()["Blocked"])
    team.limit("pods", 2)
    goes_on(team)


def test_a_limit_range_whose_minimum_the_trainer_does_not_meet(team: Team) -> None:
    least = {"type": "Container", "min": {"cpu": "200m", "memory": "1Gi"}}
    kind = {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "least"}, "spec": {"limits": [least]}}
    team.create(kind)
    job = a_job()
    room = job["spec"]["template"]["spec"]["containers"][0]["resources"] = {
        "requests": {"cpu": "0.1", "memory": "2Gi"}
    }
    team.apply(job)
    said = blocked(team)
    assert said["reason"] == "LimitRangeViolation", said
    assert "minimum cpu usage per Container is 200m, but request is 100m (container trainer" in said["message"]
    room["requests"]["cpu"] = "0.2"
    team.change(suspend=True)
    team.apply(job | {"spec": job["spec"] | {"suspend": False}})
    goes_on(team)


COST, QUEUE, ARGO = "example.com/cost-center", "kueue.x-k8s.io/queue-name", "argocd.argoproj.io/instance"


@pytest.fixture
def demanding(team: Team) -> Iterator[str]:
    """Policies that refuse what has no cost center, and what beside pods has a label of Argo CD's or Kueue's."""
    group, name = "/apis/admissionregistration.k8s.io/v1", f"cost-center-{team.namespace}"
    lacks, has = f"has(object.metadata.labels) && '{COST}' in object.metadata.labels", f"['{QUEUE}', '{ARGO}']"
    alone = f"!has(object.metadata.labels) || !{has}.exists(key, key in object.metadata.labels)"
    every = {"apiGroups": ["", "networking.k8s.io", "policy"], "apiVersions": ["v1"], "operations": ["CREATE"]}
    of_jobs = {"resources": ["pods", "services", "secrets", "networkpolicies", "poddisruptionbudgets"]}
    besides = {"resources": ["services", "secrets", "networkpolicies", "poddisruptionbudgets"]}
    namespace = {"matchLabels": {"kubernetes.io/metadata.name": team.namespace}}
    policies = {
        name: (of_jobs, lacks, f"no label {COST}"),
        f"{name}-alone": (besides, alone, "a label by which a tool would know it"),
    }
    for policy, (resources, expression, message) in policies.items():
        spec = {
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": [every | resources]},
            "validations": [{"expression": expression, "message": message}],
        }
        team.plant.api.create(f"{group}/validatingadmissionpolicies", {"metadata": {"name": policy}, "spec": spec})
        bound = {"policyName": policy, "validationActions": ["Deny"]}
        binding = {
            "metadata": {"name": policy},
            "spec": {**bound, "matchResources": {"namespaceSelector": namespace}},
        }
        team.plant.api.create(f"{group}/validatingadmissionpolicybindings", binding)
    try:
        wait_for("the policy to be in force", lambda: _is_denied(team))
        yield name
    finally:
        for policy in policies:
            team.plant.kubectl("delete", "validatingadmissionpolicy,validatingadmissionpolicybinding", policy)


def _is_denied(team: Team) -> bool:
    probe = ["create", "secret", "generic", "probe", "--dry-run=server", f"--namespace={team.namespace}"]
    try:
        team.plant.kubectl(*probe)
    except PlantError as error:
        return COST in str(error)
    return False


def test_a_policy_that_demands_a_label_is_told_from_a_wrong_template_and_is_met_by_the_template_alone(
    team: Team, demanding: str
) -> None:
    job = a_job(suspend=False)
    team.apply(job)
    said = blocked(team)
    assert said["reason"] == "PolicyDenied", said
    assert (
        f"ValidatingAdmissionPolicy '{demanding}' with binding '{demanding}' denied request: no label"
        in said["message"]
    )
    team.change(suspend=True)
    labels = {COST: "42", QUEUE: "training", ARGO: "apps"}
    template = job["spec"]["template"] | {"metadata": {"labels": labels}}
    team.apply(job | {"spec": job["spec"] | {"template": template, "suspend": False}})
    goes_on(team)
    assert {
        one["metadata"]["labels"][COST] for kind in ("services", "networkpolicies") for one in team.all(kind)
    } == {"42"}


def enforce(team: Team, standard: str | None) -> None:
    """The namespace admits only pods of this standard of Pod Security, or all."""
    labels = {"pod-security.kubernetes.io/enforce": standard}
    team.plant.api.patch(f"/api/v1/namespaces/{team.namespace}", {"metadata": {"labels": labels}})


def test_pod_security(team: Team) -> None:
    enforce(team, "restricted")
    job = a_job()
    job["spec"]["template"]["spec"]["containers"][0]["securityContext"] = {"capabilities": {"add": ["SYS_TIME"]}}
    team.apply(job)
    said = blocked(team)
    assert said["reason"] == "PodSecurityViolation", said
    assert 'violates PodSecurity "restricted:latest"' in said["message"]
    assert 'container "trainer" must not include "SYS_TIME"' in said["message"]
    enforce(team, None)
    goes_on(team)


def test_the_default_pods_are_admitted_by_the_restricted_standard(team: Team) -> None:
    enforce(team, "restricted")
    team.apply(a_job())
    assert team.wait("Succeeded")["restarts"] == 0
    assert team.events()["Blocked"] == 0


def test_a_priority_class_that_does_not_exist(team: Team) -> None:
    job = a_job()
    name = job["spec"]["template"]["spec"]["priorityClassName"] = f"class-of-{team.namespace}"
    team.apply(job)
    said = blocked(team)
    assert f"no PriorityClass with name {name} was found" in said["message"]
    kind = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": 7}
    team.create(kind)
    goes_on(team)


def test_a_service_under_the_job_s_name_is_in_nobody_s_way_and_is_not_made_by_a_job(team: Team) -> None:
    team.create(a_service("digits"))
    before = team.all("services")
    team.apply(a_job())
    assert team.wait("Succeeded")["attempt"] == 1
    (own,) = (one["metadata"] for one in team.all("services") if one not in before)
    assert own["name"] == team.status()["network"]["service"] != "digits"
    assert [one for one in team.all("services") if one["metadata"]["name"] == "digits"] == before


def a_service(name: str) -> dict[str, Any]:
    metadata = {"name": name}
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {"ports": [{"port": 80}]}}


def test_a_volume_claim_that_does_not_exist_is_named_in_the_message(team: Team) -> None:
    job = a_job()
    claim = {"persistentVolumeClaim": {"claimName": "checkpoints"}}
    job["spec"]["checkpoint"] = {"path": "/checkpoints", "volume": claim}
    team.apply(job)
    team.until("{.status.state}=Starting")
    words = 'persistentvolumeclaim "checkpoints" not found'
    team.plant.wait("the job to name the claim", lambda: words in team.status()["message"])
    assert "Unschedulable" in team.status()["message"]
    spec = {
        "accessModes": ["ReadWriteMany"],
        "resources": {"requests": {"storage": "1Gi"}},
        "volumeName": team.namespace,
    }
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": team.namespace},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteMany"],
            "hostPath": {"path": "/nowhere"},
            "claimRef": {"namespace": team.namespace, "name": "checkpoints"},
        },
    }
    metadata = {"name": "checkpoints"}
    made = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": metadata,
        "spec": {**spec, "storageClassName": ""},
    }
    team.apply(volume, made)
    team.wait("Succeeded", seconds=90)


def a_pod(name: str) -> dict[str, Any]:
    containers = [{"name": "other", "image": "other"}]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": containers}}


@pytest.mark.parametrize(
    ("name_of", "made"),
    [(lambda job: pod_name(job, 1, 1), a_pod), (lambda job: name_beside(job.ref), a_service)],
    ids=["Pod", "Service"],
)
def test_who_takes_the_name_of_what_is_to_be_made_for_a_job_stops_that_job_alone(
    team: Team, name_of: Callable[[DDPJob], str], made: Callable[[str], dict[str, Any]]
) -> None:
    team.apply(a_job(suspend=True))
    team.wait("Suspended")
    job = team.job()
    assert job is not None
    name = name_of(DDPJob.from_dict(job))
    kind = made(name)["kind"]
    kinds = f"{kind.lower()}s"
    team.create(made(name))
    team.change(suspend=False)
    said = blocked(team)
    assert (said["reason"], said["message"].split(" exists")[0]) == (f"{kind}Taken", f"{kind} {name}")
    (there,) = (one for one in team.all(kinds) if one["metadata"]["name"] == name)
    assert Label.JOB_UID not in json.dumps(there)
    team.apply(a_job("another"))
    team.wait("Succeeded", "another")
    team.delete(kinds, name, grace=0)
    goes_on(team)
