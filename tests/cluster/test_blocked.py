"""What only the API server can refuse: the job says so in the server's words, and goes on once the cause is gone."""

import json
from typing import Any

from ddpjob_operator.api import DDPJob
from ddpjob_operator.api.contract import Label
from ddpjob_operator.engine import pod_name

from tests.plant import Plant
from tests.support.jobs import Team, a_job, condition


def blocked(team: Team) -> dict[str, Any]:
    """The condition, once it is set."""
    team.kubectl("wait", "--for=condition=Blocked", "ddpjob/digits", "--timeout=60s")
    return condition(team.status(), "Blocked")


def goes_on(team: Team) -> None:
    """The job finishes, and says that nothing is in the way any more."""
    status = team.wait("Succeeded", seconds=90)
    assert condition(status, "Blocked")["status"] == "False"
    assert status["restarts"] == 0


def test_a_quota_that_is_met_half_way(team: Team) -> None:
    team.limit_pods(1)
    team.apply(a_job())
    said = blocked(team)
    assert said["reason"] == "QuotaExceeded"
    assert "exceeded quota: pods, requested: pods=1, used: pods=1, limited: pods=1" in said["message"]
    assert team.status()["message"] == said["message"]
    assert team.events()["Blocked"] >= 1
    team.limit_pods(2)
    goes_on(team)


def test_pod_security(fake: Plant, team: Team) -> None:
    label = "pod-security.kubernetes.io/enforce"
    fake.kubectl("label", "namespace", team.namespace, f"{label}=restricted")
    job = a_job()
    job["spec"]["template"]["spec"]["containers"][0]["securityContext"] = {"capabilities": {"add": ["SYS_TIME"]}}
    team.apply(job)
    said = blocked(team)
    assert said["reason"] == "PodSecurityViolation", said
    assert 'violates PodSecurity "restricted:latest"' in said["message"]
    assert 'container "trainer" must not include "SYS_TIME"' in said["message"]
    fake.kubectl("label", "namespace", team.namespace, f"{label}-")
    goes_on(team)


def test_the_default_pods_are_admitted_by_the_restricted_standard(fake: Plant, team: Team) -> None:
    fake.kubectl("label", "namespace", team.namespace, "pod-security.kubernetes.io/enforce=restricted")
    team.apply(a_job())
    assert team.wait("Succeeded")["restarts"] == 0
    assert team.events()["Blocked"] == 0


def test_a_priority_class_that_does_not_exist(fake: Plant, team: Team) -> None:
    job = a_job()
    name = job["spec"]["template"]["spec"]["priorityClassName"] = f"class-of-{team.namespace}"
    team.apply(job)
    said = blocked(team)
    assert f"no PriorityClass with name {name} was found" in said["message"]
    kind = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": 7}
    fake.kubectl("create", "-f", "-", input=json.dumps(kind))
    goes_on(team)


def test_a_foreign_service_under_the_job_s_name_is_not_touched(team: Team) -> None:
    foreign = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "digits"},
        "spec": {"ports": [{"port": 80}]},
    }
    team.kubectl("create", "-f", "-", input=json.dumps(foreign))
    before = team.kubectl("get", "service", "digits", "-o", "json")
    team.apply(a_job())
    said = blocked(team)
    assert said["reason"] == "ServiceTaken"
    assert said["message"].startswith("Service digits exists and belongs to somebody else")
    assert not team.pods(), "no pod is made as long as it could not find its master"
    assert team.kubectl("get", "service", "digits", "-o", "json") == before
    team.kubectl("delete", "service", "digits")
    goes_on(team)


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


def test_a_foreign_pod_under_a_pod_s_name(team: Team) -> None:
    team.apply(a_job(suspend=True))
    team.wait("Suspended")
    job = team.job()
    assert job is not None
    name = pod_name(DDPJob.from_dict(job), 1, 1)
    containers = [{"name": "other", "image": "other"}]
    foreign = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": containers}}
    team.kubectl("create", "-f", "-", input=json.dumps(foreign))
    team.kubectl("patch", "ddpjob", "digits", "--type=merge", "-p", '{"spec": {"suspend": false}}')
    said = blocked(team)
    assert (said["reason"], said["message"].split(" exists")[0]) == ("PodTaken", f"Pod {name}")
    assert Label.JOB_UID not in team.kubectl("get", "pod", name, "-o", "json")
    team.kubectl("delete", "pod", name, "--grace-period=0", "--force")
    goes_on(team)
