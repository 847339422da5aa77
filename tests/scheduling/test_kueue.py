"""Kueue itself: what it does with Workloads that are made by hand, on which the operator's own rely."""

import time
from typing import Any

import pytest

from tests.plant.kueue import API
from tests.scheduling.kueue import FLAVOR, GPU, Kueue
from tests.support.api_client import ApiError
from tests.support.jobs import condition

pytestmark = pytest.mark.full("shows Kueue, not the operator")

GPUS = 16
"""Two nodes' worth."""


@pytest.fixture
def namespace(kueue: Kueue) -> str:
    """One with a LocalQueue, `team`, that leads to a ClusterQueue of its own."""
    name = kueue.plant.new_namespace()
    kueue.flavor()
    kueue.cluster_queue(name, GPUS, preemption={"withinClusterQueue": "LowerPriority"})
    kueue.local_queue(name, "team", name)
    return name


def give_back(kueue: Kueue, namespace: str, name: str, reason: str) -> None:
    """As an owner does whose pods are gone: in one write."""
    workload = kueue.plant.get(kueue.path(namespace, name))
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    told = [
        {"type": "QuotaReserved", "status": "False", "reason": reason},
        {"type": "Admitted", "status": "False", "reason": "NoReservation"},
    ]
    others = [one for one in workload["status"]["conditions"] if one["type"] not in {"QuotaReserved", "Admitted"}]
    new = [{"message": "", "lastTransitionTime": now, **one} for one in told]
    change = {"metadata": {"resourceVersion": workload["metadata"]["resourceVersion"]}}
    status = {"admission": None, "conditions": others + new}
    kueue.plant.api.patch(f"{kueue.path(namespace, name)}/status", change | {"status": status})


def test_a_workload_that_its_queue_has_room_for_is_admitted(kueue: Kueue, namespace: str) -> None:
    kueue.workload(namespace, "one", "team", pods=2)
    kueue.condition(namespace, "one", "Admitted")
    status = kueue.status(namespace, "one")
    assert condition(status, "QuotaReserved")["status"] == "True"
    assignment = {"name": "main", "count": 2, "flavors": {GPU: FLAVOR}, "resourceUsage": {GPU: "16"}}
    assert status["admission"] == {"clusterQueue": namespace, "podSetAssignments": [assignment]}


@pytest.mark.parametrize(
    ("asked", "reason", "message"),
    [
        (("team", 2), "Pending", "insufficient unused quota for nvidia.com/gpu in flavor default, 16 more needed"),
        (("team", 3), "Pending", "current podset request (24) > maximum capacity (16)"),
        (("nowhere", 2), "Inadmissible", "LocalQueue nowhere doesn't exist"),
    ],
    ids=["others have the quota", "it is more than the quota", "there is no such queue"],
)
def test_a_workload_that_is_not_admitted_says_why(
    kueue: Kueue, namespace: str, asked: tuple[str, int], reason: str, message: str
) -> None:
    kueue.workload(namespace, "first", "team", pods=2)
    kueue.condition(namespace, "first", "Admitted")
    kueue.workload(namespace, "one", *asked)
    found = kueue.condition(namespace, "one", "QuotaReserved", "False")
    assert found["reason"] == reason
    assert message in found["message"]
    assert "admission" not in kueue.status(namespace, "one")


def test_one_of_a_lower_priority_is_evicted_and_has_its_quota_until_its_owner_gives_it_back(
    kueue: Kueue, namespace: str
) -> None:
    kueue.priority_class("high", 1000)
    kueue.workload(namespace, "low", "team", pods=2)
    kueue.condition(namespace, "low", "Admitted")
    high = {"group": API.partition("/")[0], "kind": "WorkloadPriorityClass", "name": "high"}
    kueue.workload(namespace, "high", "team", pods=1, priority=1000, priorityClassRef=high)
    assert kueue.condition(namespace, "low", "Evicted")["reason"] == "Preempted"
    assert "Pending the preemption" in kueue.condition(namespace, "high", "QuotaReserved", "False")["message"]
    assert condition(kueue.status(namespace, "low"), "Admitted")["status"] == "True"
    give_back(kueue, namespace, "low", "Pending")
    kueue.condition(namespace, "high", "Admitted")


def test_a_stopped_queue_evicts_and_admits_again_when_it_runs(kueue: Kueue, namespace: str) -> None:
    kueue.workload(namespace, "one", "team", pods=2)
    kueue.condition(namespace, "one", "Admitted")
    kueue.cluster_queue(namespace, GPUS, stopPolicy="HoldAndDrain")
    assert kueue.condition(namespace, "one", "Evicted")["reason"] == "ClusterQueueStopped"
    give_back(kueue, namespace, "one", "Pending")
    assert kueue.condition(namespace, "one", "QuotaReserved", "False")
    kueue.cluster_queue(namespace, GPUS)
    kueue.condition(namespace, "one", "Admitted")
    kueue.condition(namespace, "one", "Evicted", "False")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"count": 3}, "spec.podSets.0: Invalid value"),
        ({"name": "other"}, "spec.podSets.0: Invalid value"),
    ],
    ids=str,
)
def test_pod_sets_of_an_admitted_one_stay_as_they_are(
    kueue: Kueue, namespace: str, change: dict[str, Any], message: str
) -> None:
    kueue.workload(namespace, "one", "team", pods=2)
    kueue.condition(namespace, "one", "Admitted")
    path = kueue.path(namespace, "one")
    (pod_set,) = kueue.plant.get(path)["spec"]["podSets"]
    with pytest.raises(ApiError, match=message):
        kueue.plant.api.patch(path, {"spec": {"podSets": [pod_set | change]}})


def test_it_can_be_read_as_the_former_version_too(kueue: Kueue, namespace: str) -> None:
    kueue.workload(namespace, "one", "team", pods=2)
    former = kueue.plant.get(kueue.path(namespace, "one").replace("v1beta2", "v1beta1"))
    assert (former["apiVersion"], former["spec"]["queueName"]) == ("kueue.x-k8s.io/v1beta1", "team")
