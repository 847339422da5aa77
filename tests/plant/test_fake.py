import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.plant import Plant, start_fake
from tests.plant.needs import demand
from tests.support.jobs import Team, heard, steered

OF_A_JOB = {"app.kubernetes.io/managed-by": "ddpjob-operator"}
GRACE_SECONDS = 4
DEFAULT_GRACE_SECONDS = 30


@pytest.fixture(scope="module")
def plant() -> Iterator[Plant]:
    demand("fake")
    with start_fake(nodes=2, node_grace_seconds=4) as started:
        yield started


@pytest.fixture
def namespace(plant: Plant) -> str:
    return plant.new_namespace()


def create(plant: Plant, namespace: str, labels: dict[str, str], grace: int = 30, **steering: str) -> None:
    spec = {
        "terminationGracePeriodSeconds": grace,
        "initContainers": [{"name": "prepare", "image": "any"}],
        "containers": [{"name": "trainer", "image": "any"}, {"name": "beside", "image": "any"}],
    }
    metadata = {"name": "pod", "namespace": namespace, "labels": labels, "annotations": steered(**steering)}
    document = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    Team(plant, namespace).create(document)


def stop(plant: Plant, namespace: str) -> None:
    """Makes the pod exceed its deadline, so that it is ended."""
    change(plant, namespace, spec={"activeDeadlineSeconds": 1})


def change(plant: Plant, namespace: str, **fields: Any) -> None:
    """Changes the pod."""
    plant.api.patch(f"/api/v1/namespaces/{namespace}/pods/pod", fields)


def get(plant: Plant, namespace: str) -> Any:
    return plant.get(f"/api/v1/namespaces/{namespace}/pods/pod")


def in_phase(plant: Plant, namespace: str, phase: str) -> dict[str, Any]:
    """Waits until the pod is in a phase, and returns its status."""
    plant.wait(f"the phase {phase}", lambda: get(plant, namespace)["status"]["phase"] == phase)
    status: dict[str, Any] = get(plant, namespace)["status"]
    return status


def ended(status: dict[str, Any], container: str) -> dict[str, Any]:
    states = {one["name"]: one["state"] for kind in ("init", "c") for one in status[_statuses(kind)]}
    terminated: dict[str, Any] = states[container]["terminated"]
    return terminated


def _statuses(kind: str) -> str:
    return "initContainerStatuses" if kind == "init" else "containerStatuses"


def test_a_pod_of_a_job_runs_and_completes(plant: Plant, namespace: str) -> None:
    create(plant, namespace, OF_A_JOB)
    status = in_phase(plant, namespace, "Succeeded")
    assert status["podIP"]
    assert {one["type"] for one in status["conditions"]} >= {
        "PodScheduled",
        "Initialized",
        "Ready",
        "ContainersReady",
    }
    assert ended(status, "prepare")["exitCode"] == 0
    trainer = ended(status, "trainer")
    assert (trainer["exitCode"], trainer["reason"]) == (0, "Completed")
    assert trainer["finishedAt"] >= trainer["startedAt"]


def test_a_pod_fails_as_its_annotations_say(plant: Plant, namespace: str) -> None:
    create(plant, namespace, OF_A_JOB, runs_for="0s", exit_code="137", reason="OOMKilled", message="out of memory")
    status = in_phase(plant, namespace, "Failed")
    trainer = ended(status, "trainer")
    assert (trainer["exitCode"], trainer["reason"], trainer["message"]) == (137, "OOMKilled", "out of memory")
    assert ended(status, "beside")["exitCode"] == 0


def test_a_running_pod_ends_when_it_is_told_to(plant: Plant, namespace: str) -> None:
    create(plant, namespace, OF_A_JOB, runs_for="1h")
    in_phase(plant, namespace, "Running")
    Team(plant, namespace).tell("pod", runs_for="0s", exit_code="3")
    assert ended(in_phase(plant, namespace, "Failed"), "trainer")["exitCode"] == 3


def test_a_pod_of_nobody_runs_until_it_is_deleted(plant: Plant, namespace: str) -> None:
    create(plant, namespace, {})
    in_phase(plant, namespace, "Running")
    another = plant.new_namespace()
    create(plant, another, OF_A_JOB)
    in_phase(plant, another, "Succeeded")
    in_phase(plant, namespace, "Running")
    begin = time.monotonic()
    Team(plant, namespace).delete("pods", "pod", wait=True)
    assert time.monotonic() - begin < DEFAULT_GRACE_SECONDS / 2
    assert get(plant, namespace) is None


def test_a_pod_of_somebody_else_completes_if_it_says_when(plant: Plant, namespace: str) -> None:
    create(plant, namespace, {}, runs_for="0s")
    in_phase(plant, namespace, "Succeeded")


def test_a_pod_that_ignores_sigterm_takes_its_whole_grace(plant: Plant, namespace: str) -> None:
    create(plant, namespace, OF_A_JOB, runs_for="1h", ignores_sigterm="true")
    in_phase(plant, namespace, "Running")
    begin = time.monotonic()
    Team(plant, namespace).delete("pods", "pod", grace=GRACE_SECONDS, wait=True)
    # Deletion timestamps are in whole seconds, so a pod may be deleted up to a second too early.
    assert time.monotonic() - begin >= GRACE_SECONDS - 1
    assert get(plant, namespace) is None


def test_a_pod_whose_time_is_over_ends_and_stays(plant: Plant, namespace: str) -> None:
    create(plant, namespace, OF_A_JOB, runs_for="1h")
    in_phase(plant, namespace, "Running")
    stop(plant, namespace)
    status = in_phase(plant, namespace, "Failed")
    assert (status["reason"], ended(status, "trainer")["exitCode"]) == ("DeadlineExceeded", 143)
    assert "deletionTimestamp" not in get(plant, namespace)["metadata"]


def test_a_pod_that_ignores_sigterm_has_its_grace_when_its_time_is_over(plant: Plant, namespace: str) -> None:
    create(plant, namespace, OF_A_JOB, runs_for="1h", ignores_sigterm="true", grace=GRACE_SECONDS)
    in_phase(plant, namespace, "Running")
    begin = time.monotonic()
    stop(plant, namespace)
    status = in_phase(plant, namespace, "Failed")
    assert time.monotonic() - begin >= GRACE_SECONDS - 1
    assert (status["reason"], ended(status, "trainer")["exitCode"]) == ("DeadlineExceeded", 137)


def test_a_pod_waits_as_long_as_its_annotation_says(plant: Plant, namespace: str) -> None:
    create(plant, namespace, OF_A_JOB, waits_for="ImagePullBackOff", message="no such image")
    plant.wait("the kubelet's word", lambda: get(plant, namespace)["status"].get("containerStatuses"))
    status = get(plant, namespace)["status"]
    assert status["phase"] == "Pending"
    waiting = {one["name"]: one["state"]["waiting"] for one in status["containerStatuses"]}
    assert waiting["trainer"] == {"reason": "ImagePullBackOff", "message": "no such image"}
    Team(plant, namespace).tell("pod", waits_for=None)
    assert ended(in_phase(plant, namespace, "Succeeded"), "trainer")["exitCode"] == 0


def test_what_belongs_to_a_deleted_owner_is_collected(plant: Plant, namespace: str) -> None:
    owners = f"/api/v1/namespaces/{namespace}/configmaps"
    uid = plant.api.create(owners, {"metadata": {"name": "owner"}})["metadata"]["uid"]
    create(plant, namespace, OF_A_JOB, runs_for="1h")
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": uid}
    change(plant, namespace, metadata={"ownerReferences": [owner]})
    plant.api.delete(f"{owners}/owner")
    plant.wait("the garbage collector", lambda: get(plant, namespace) is None)


def test_a_node_that_falls_silent_is_lost_and_its_pod_is_no_longer_ready(plant: Plant, namespace: str) -> None:
    create(plant, namespace, OF_A_JOB, runs_for="1h")
    in_phase(plant, namespace, "Running")
    node = get(plant, namespace)["spec"]["nodeName"]
    heard(plant, node, None)
    plant.wait("the node's loss", lambda: _condition(plant.get(f"/api/v1/nodes/{node}")) == "Unknown")
    plant.wait("the pod's", lambda: _condition(get(plant, namespace)) == "False")
    Team(plant, namespace).delete("pods", "pod", grace=1)
    plant.wait("its time to be over", lambda: _overdue(get(plant, namespace)))
    assert get(plant, namespace)["status"]["phase"] == "Running", "nobody says that it has ended"
    heard(plant, node, "true")
    plant.wait("the pod to go", lambda: get(plant, namespace) is None)
    plant.wait("the node's return", lambda: _condition(plant.get(f"/api/v1/nodes/{node}")) == "True")


def _overdue(pod: dict[str, Any]) -> bool:
    by = datetime.fromisoformat(pod["metadata"]["deletionTimestamp"])
    return datetime.now(UTC) > by + timedelta(seconds=2)


def _condition(thing: dict[str, Any]) -> str:
    return next(str(one["status"]) for one in thing["status"]["conditions"] if one["type"] == "Ready")
