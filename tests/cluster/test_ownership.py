"""What somebody may do to others' jobs who may make pods and policies in one namespace: nothing."""

import json
import time
from typing import Any

import pytest
from ddpjob_operator.api.contract import API_VERSION, KIND, MANAGER, Label

from tests.plant import Plant
from tests.support.jobs import FOR_LONG, Team, a_job, meanwhile, steered
from tests.support.operators import an_operator

MALLORY = "mallory"
OF_DDPJOB = {"apiVersion": API_VERSION, "kind": KIND}


def makes(team: Team, namespace: str, resource: str, document: dict[str, Any]) -> None:
    """A user makes an object who has no other right than to make such objects in that namespace."""
    plant, role = team.plant, f"makes-{resource}"
    plant.kubectl("create", "role", role, "--verb=create", f"--resource={resource}", f"--namespace={namespace}")
    plant.kubectl("create", "rolebinding", role, f"--role={role}", f"--user={MALLORY}", f"--namespace={namespace}")
    words = ("create", "--namespace", namespace, "--validate=false", "--filename", "-")
    plant.kubectl(*words, input=json.dumps(document), kubeconfig=plant.kubeconfig_for(MALLORY))


def forged(team: Team, name: str, **reference: str) -> dict[str, Any]:
    """Metadata with the job's labels and uid, and with this owner beside."""
    uid = (team.job() or {})["metadata"]["uid"]
    labels = {Label.MANAGED_BY: MANAGER, Label.JOB_NAME: "digits", Label.JOB_UID: uid}
    owner = {"name": "digits", "uid": uid, "controller": True, **reference}
    place = {Label.NODE: "0", Label.INCARNATION: "1"}
    return {"name": name, "labels": {**labels, **place}, "ownerReferences": [owner]}


@pytest.mark.parametrize(
    ("elsewhere", "reference", "own_name"),
    [
        (True, {"apiVersion": "example.com/v1", "kind": "Unknown"}, False),
        (True, OF_DDPJOB, False),
        (False, {"apiVersion": "example.com/v1", "kind": "Unknown"}, False),
        (False, OF_DDPJOB, True),
    ],
    ids=["another namespace, unknown kind", "another namespace", "unknown kind", "a name of its own"],
)
def test_a_pod_with_a_jobs_uid_and_labels_does_not_fail_the_job(
    team: Team,
    elsewhere: bool,  # noqa: FBT001  A table.
    reference: dict[str, str],
    own_name: bool,  # noqa: FBT001
) -> None:
    team.apply(a_job(annotations=FOR_LONG))
    team.wait("Running")
    pods = {pod["metadata"]["uid"] for pod in team.pods()}
    namespace = team.plant.new_namespace() if elsewhere else team.namespace
    # In the job's own namespace the pods' names are taken; elsewhere they are free.
    name = team.pod(0) if elsewhere and not own_name else "forged"
    spec = {"containers": [{"name": "trainer", "image": "nothing"}], "restartPolicy": "Never"}
    metadata = forged(team, name, **reference) | {"annotations": steered(runs_for="0s", exit_code="1")}
    makes(team, namespace, "pods", {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    path = f"/api/v1/namespaces/{namespace}/pods/{name}"
    phase = lambda: (team.plant.get(path) or {}).get("status", {}).get("phase")  # noqa: E731
    team.plant.wait("the forged pod to fail, or to be taken away", lambda: phase() in {"Failed", None})
    team.change(ttlSecondsAfterFinished=3600)  # Whatever it is, the job gets another look.
    meanwhile(team)
    status = team.status()
    assert (status["state"], status["restarts"], status["disruptions"]) == ("Running", 0, 0)
    assert pods <= {pod["metadata"]["uid"] for pod in team.pods()}, "none of its own pods was taken away"


def test_a_network_policy_made_while_a_job_is_suspended_is_not_taken_for_its_own(team: Team) -> None:
    team.apply(a_job(annotations=FOR_LONG, suspend=True))
    team.wait("Suspended")
    metadata = forged(team, "forged", apiVersion="example.com/v1", kind="Unknown")
    everybody = {"podSelector": {}, "ingress": [{}]}
    policy = {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": metadata, "spec": everybody}
    makes(team, team.namespace, "networkpolicies.networking.k8s.io", policy)
    meanwhile(team)
    team.change(suspend=False)
    team.wait("Running")
    names = {one["metadata"]["name"] for one in team.all("networkpolicies")}
    assert sum(name.startswith("digits-") for name in names) == 1, f"it has one of its own: {names}"


def test_what_looks_like_a_jobs_own_and_is_not_costs_a_few_looks(unattended: Plant) -> None:
    team = Team(unattended)
    beside = {
        "networkpolicies": ("networking.k8s.io/v1", "NetworkPolicy", {"podSelector": {}, "ingress": [{}]}),
        "poddisruptionbudgets": ("policy/v1", "PodDisruptionBudget", {"maxUnavailable": 0}),
    }
    with an_operator(unattended, f"--namespace={team.namespace}", "--no-leader-elect", forked=True) as operator:
        team.apply(a_job(annotations=FOR_LONG, disruption="AfterCheckpoint"))
        team.wait("Running")
        metadata = forged(team, "forged", apiVersion="example.com/v1", kind="Unknown")
        for resource, (version, kind, spec) in beside.items():
            document = {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}
            makes(team, team.namespace, f"{resource}.{version.partition('/')[0]}", document)
        team.change(suspend=True)
        team.wait("Suspended")
        team.change(network={"policy": "Disabled"}, disruption="Allow")
        team.change(suspend=False)
        team.wait("Running")
        begun = operator.metric("ddpjob_reconcile_seconds_count")
        time.sleep(8)
        looks = operator.metric("ddpjob_reconcile_seconds_count") - begun
        assert looks < 20, operator.log
        left = {one["metadata"]["name"] for resource in beside for one in team.all(resource)}
        assert left == {"forged"}, "what is not its own stays"
