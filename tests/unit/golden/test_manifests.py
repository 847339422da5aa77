"""The Service and the pods as they are created, in full."""

from dataclasses import replace
from typing import Any

import pytest
import yaml
from ddpjob_operator.engine import (
    NETWORK_POLICY,
    POD_GROUP,
    SECRET,
    SERVICE,
    WORKLOAD,
    CreatePod,
    Manifest,
    OwnedKind,
    Settings,
    pod_name,
)

from tests.unit.engine.builders import Moment, a_job, made

from .conftest import Golden

WITH_DATA: dict[str, Any] = {
    "spec": {
        "containers": [
            {"name": "trainer", "image": "trainer:1", "volumeMounts": [{"name": "data", "mountPath": "/data"}]}
        ],
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
    }
}

OPINIONATED: dict[str, Any] = {
    "metadata": {
        "labels": {"team": "vision", "app.kubernetes.io/managed-by": "somebody"},
        "annotations": {"note": "kept"},
    },
    "spec": {
        "restartPolicy": "Never",
        "topologySpreadConstraints": [],
        "terminationGracePeriodSeconds": 120,
        "volumes": [{"name": "own-shm", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}}],
        "initContainers": [{"name": "fetch", "image": "fetch:1", "env": [{"name": "FROM", "value": "s3://bucket"}]}],
        "containers": [
            {"name": "sidecar", "image": "sidecar:1"},
            {
                "name": "trainer",
                "image": "trainer:1",
                "args": ["--rank=$(NODE_RANK)"],
                "env": [{"name": "OMP_NUM_THREADS", "value": "4"}],
                "terminationMessagePath": "/tmp/last-words",
                "terminationMessagePolicy": "File",
                "volumeMounts": [{"name": "own-shm", "mountPath": "/dev/shm"}],
            },
        ],
    },
}


def with_gpus(number: int) -> dict[str, Any]:
    resources = {"limits": {"nvidia.com/gpu": number, "cpu": "8"}, "requests": {"nvidia.com/gpu": number}}
    return {"spec": {"containers": [{"name": "trainer", "image": "trainer:1", "resources": resources}]}}


checkpointed = a_job(
    nodes=2,
    network={"masterPort": 12345},
    checkpoint={
        "path": "/checkpoints",
        "everySteps": 50,
        "keep": 2,
        "volume": {"persistentVolumeClaim": {"claimName": "runs"}},
    },
)

in_a_group = a_job(
    nodes=2,
    scheduling={"disruptionMode": {"all": {}}},
    template={"spec": {"priorityClassName": "high", "containers": [{"name": "trainer", "image": "trainer:1"}]}},
).grouped()

PODS: dict[str, tuple[Moment, int]] = {
    "one-process-per-node": (a_job(nodes=2), 1),
    "several-processes-per-node": (a_job(nodes=2, procsPerNode=4), 1),
    "one-process-per-gpu": (a_job(nodes=2, template=with_gpus(8)), 0),
    "checkpoint-volume": (checkpointed, 0),
    "checkpoint-without-a-volume": (a_job(checkpoint={"path": "/data/runs", "everySeconds": 600}), 0),
    "checkpoint-on-a-volume-of-the-template": (a_job(checkpoint={"path": "/data/runs"}, template=WITH_DATA), 0),
    "template-that-wins": (a_job(template=OPINIONATED), 0),
    "after-a-restart": (a_job(nodes=2).running().fails(0).decided().gone().after(1), 0),
    "in-a-group": (in_a_group, 1),
    "after-a-resize": (a_job(nodes=2).running().asks(nodes=4).decided().gone(), 3),
}


def created(moment: Moment, rank: int) -> Manifest:
    made = (action for action in moment.decision.actions if isinstance(action, CreatePod))
    return next(action.build() for action in made if action.node == rank)


def as_yaml(manifest: Manifest) -> str:
    return yaml.safe_dump(manifest, sort_keys=False, width=100)


@pytest.mark.parametrize("name", PODS)
def test_a_pod_is_its_golden_file(name: str, golden: Golden) -> None:
    golden(f"pod-{name}.yaml", as_yaml(created(*PODS[name])))


def test_the_service_is_its_golden_file(golden: Golden) -> None:
    golden("service.yaml", as_yaml(*made(checkpointed.decision, SERVICE)))


def test_the_network_policy_is_its_golden_file(golden: Golden) -> None:
    snapshot = replace(
        a_job(network={"policy": "Enabled"}).snapshot, settings=Settings(operator_namespace="ddpjob-system")
    )
    golden("network-policy.yaml", as_yaml(*made(Moment(snapshot).decision, NETWORK_POLICY)))


@pytest.mark.parametrize(
    ("name", "kind"), [("workload", WORKLOAD), ("pod-group", POD_GROUP)], ids=["workload", "pod group"]
)
def test_what_the_scheduler_places_a_gang_by_is_its_golden_file(name: str, kind: OwnedKind, golden: Golden) -> None:
    golden(f"{name}.yaml", as_yaml(*made(in_a_group.decision, kind)))


def test_the_secret_is_its_golden_file(golden: Golden) -> None:
    golden("secret.yaml", as_yaml(*made(checkpointed.decision, SECRET)))


def test_the_template_in_the_job_is_left_as_it_is() -> None:
    moment = a_job(template=OPINIONATED)
    before = moment.snapshot.job.model_copy(deep=True)
    created(moment, 0)
    assert moment.snapshot.job == before


def test_names_fit_in_a_dns_label_even_for_the_longest_job_with_the_most_nodes() -> None:
    longest = a_job(nodes=4096).called(name="a" * 52)
    assert len(pod_name(longest.snapshot.job, 4095, 1)) == 63
    first = created(a_job().called(name="a" * 52), 0)
    assert first["spec"]["hostname"] == first["metadata"]["name"] == pod_name(longest.snapshot.job, 0, 1)


def test_a_job_made_anew_under_the_same_name_has_other_pod_names() -> None:
    anew = created(a_job().called(uid="uid-2"), 0)
    assert anew["metadata"]["name"] != created(a_job(), 0)["metadata"]["name"]
