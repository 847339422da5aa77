"""Pods that the cluster takes away: the cause is told, nothing is counted, and the job goes on."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from ddpjob_operator.api.contract import Label
from ddpjob_operator.engine import fingerprint

from tests.plant import Plant
from tests.support.api_client import ApiError
from tests.support.jobs import FOR_LONG, Team, a_job, on_whole_nodes, silent

from .pages import a_page, supervised

URGENT = "urgent"
QUICKLY = [
    {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 1}
    for key in ("unreachable", "not-ready")
]


@pytest.fixture
def urgent(fake: Plant) -> Iterator[str]:
    """A priority class above all others."""
    kind = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": URGENT},
        "value": 1000,
    }
    fake.api.apply(kind, "")
    yield URGENT
    fake.api.delete(f"/apis/scheduling.k8s.io/v1/priorityclasses/{URGENT}")


def taken(team: Team, cause: str) -> dict[str, Any]:
    """The second attempt's status, after a disruption that cost nothing."""
    team.until("{.status.attempt}=2", seconds=120)
    status = team.status()
    assert (status["incidents"][0]["cause"], status["incidents"][0]["action"]) == (cause, "RestartFree")
    assert (status.get("restarts", 0), status["disruptions"], status["bookkeeping"]["budget"]["used"]) == (0, 1, 0)
    return status


def evict(team: Team, pod: str) -> None:
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod}}
    team.plant.api.create(f"{team.path('pods', pod)}/eviction", eviction)


def test_eviction_through_the_api(team: Team) -> None:
    team.apply(a_job(annotations=FOR_LONG))
    team.wait("Running")
    pod = team.pod(1)
    evict(team, pod)
    failure = taken(team, "Evicted")["incidents"][0]
    assert (failure["node"], failure["pod"]) == (1, pod)
    assert failure["message"] == "Eviction API: evicting"
    team.wait("Running")


def test_draining_a_node(fake: Plant, team: Team) -> None:
    team.apply(a_job(annotations=FOR_LONG))
    team.wait("Running")
    node = team.pods()[0]["spec"]["nodeName"]
    try:
        selector = f"--pod-selector={Label.JOB_UID}={(team.job() or {})['metadata']['uid']}"
        fake.kubectl("drain", node, selector, "--delete-emptydir-data", "--timeout=60s")
        taken(team, "Evicted")
        team.wait("Running")
        assert node not in {pod["spec"]["nodeName"] for pod in team.pods()}
    finally:
        fake.kubectl("uncordon", node)


def test_a_drain_waits_for_a_checkpoint_if_the_job_asks_for_that(fake: Plant, team: Team) -> None:
    with a_page() as page:
        team.apply(supervised(page, disruption="AfterCheckpoint"))
        page.shows(job=fingerprint((team.job() or {})["metadata"]["uid"]))
        team.wait("Running")
        fake.wait("the pods to be protected", lambda: team.all("poddisruptionbudgets"))
        pod = team.pods()[1]
        selector = f"--pod-selector={Label.JOB_UID}={pod['metadata']['labels'][Label.JOB_UID]},{Label.NODE}=1"
        drain = ("drain", pod["spec"]["nodeName"], selector, "--delete-emptydir-data")
        try:
            # As drain asks; itself it may wait for longer than its --timeout.
            with pytest.raises(ApiError, match="it would violate the pod's disruption budget"):
                evict(team, pod["metadata"]["name"])
            page.says(checkpoint={"step": 100, "time": datetime.now(UTC).isoformat()})
            fake.kubectl(*drain, "--timeout=60s")
            taken(team, "Evicted")
        finally:
            fake.kubectl("uncordon", pod["spec"]["nodeName"])


def test_a_drain_does_not_wait_for_ever_for_a_job_that_has_saved_once(unattended: Plant) -> None:
    team = Team(unattended)
    with a_page() as page, team.operator("--drain-protection-seconds=4"):
        team.apply(supervised(page, disruption="AfterCheckpoint"))
        long_ago = (datetime.now(UTC) - timedelta(hours=2)).isoformat()
        of_the_job = fingerprint((team.job() or {})["metadata"]["uid"])
        page.shows(job=of_the_job, checkpoint={"step": 100, "time": long_ago})
        team.wait("Running")
        unattended.wait("the pods to be protected", lambda: team.all("poddisruptionbudgets"))
        unattended.wait("them to be so no longer", lambda: not team.all("poddisruptionbudgets"))
        assert team.status()["checkpoint"]["step"] == 100
        evict(team, team.pod(1))
        taken(team, "Evicted")


def test_preemption_by_a_pod_of_higher_priority(fake: Plant, team: Team, urgent: str) -> None:
    team.apply(on_whole_nodes(a_job(nodes=4, annotations=FOR_LONG)))
    team.wait("Running")
    container = {"name": "main", "image": "any", "resources": {"limits": {"nvidia.com/gpu": 8}}}
    spec = {"priorityClassName": urgent, "containers": [container]}
    metadata = {"name": "urgent"}
    team.apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    failure = taken(team, "Preempted")["incidents"][0]
    assert "preempting to accommodate a higher priority pod" in failure["message"]
    words = "3 of 4 pods running; node"
    fake.wait("the job to tell what it lacks", lambda: team.status()["message"].startswith(words))
    assert "Unschedulable: 0/4 nodes are available: 4 Insufficient nvidia.com/gpu" in team.status()["message"]
    team.delete("pods", "urgent", wait=True)
    assert team.wait("Running")["attempt"] == 2
    team.delete("ddpjobs", "digits", wait=True)
    fake.wait("the nodes to be free", team.empty)


def test_a_lost_node_is_named_and_kept_away_from(fake: Plant, team: Team) -> None:
    job = a_job(nodes=4, annotations=FOR_LONG)
    job["spec"]["template"]["spec"]["tolerations"] = QUICKLY
    team.apply(job)
    team.wait("Running")
    node = team.pods()[0]["spec"]["nodeName"]
    with silent(fake, node):
        status = taken(team, "NodeLost")
        assert node in status["message"] or node in status["incidents"][0]["message"]
        avoided = {one["nodeName"]: datetime.fromisoformat(one["until"]) for one in status["avoidedNodeNames"]}
        assert set(avoided) == {node}
        assert team.wait("Running", seconds=120)["attempt"] == 2
    team.delete("pods", team.pod(0))
    team.until("{.status.attempt}=3")
    team.wait("Running")
    preferred = [
        pod["spec"]["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
        for pod in team.pods()
        if pod["metadata"]["labels"][Label.INCARNATION] == "3"
    ]
    assert all(node in json.dumps(one) for one in preferred)
    now = {pod["spec"]["nodeName"] for pod in team.pods() if pod["metadata"]["labels"][Label.INCARNATION] == "3"}
    assert node not in now, "it is back and empty, but there are others"


@pytest.mark.parametrize("flags", [(), ("--force-delete-lost-pods",)], ids=["stays", "forced"])
def test_a_pod_that_is_stuck_with_its_node_goes_only_where_the_flag_permits_it(
    unattended: Plant, flags: tuple[str, ...]
) -> None:
    team = Team(unattended)
    job = a_job(annotations=FOR_LONG)
    job["spec"]["template"]["spec"] |= {"tolerations": QUICKLY, "terminationGracePeriodSeconds": 1}
    with team.operator(*flags):
        team.apply(job)
        team.wait("Running")
        lost = team.pods()[0]
        with silent(unattended, lost["spec"]["nodeName"]):
            team.until("{.status.attempt}=2", seconds=120)
            team.wait("Running", seconds=120)
            there = f"/api/v1/namespaces/{team.namespace}/pods/{lost['metadata']['name']}"
            if flags:
                unattended.wait("the lost pod to go", lambda: unattended.get(there) is None)
            else:
                assert unattended.get(there)["metadata"]["uid"] == lost["metadata"]["uid"], (
                    "nobody knows whether it runs"
                )
        team.finish()
        team.wait("Succeeded")


def test_a_job_that_finds_no_room_says_so_in_the_scheduler_s_words(team: Team) -> None:
    job = a_job()
    job["spec"]["template"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": 1000}}
    team.apply(job)
    said = "0 of 2 pods running; rank 0 and 1 more: Unschedulable: 0/4 nodes are available: 4 Insufficient cpu"
    team.plant.wait("the scheduler's words", lambda: team.status().get("message", "").startswith(said))
    assert team.status()["state"] == "Starting"


def test_disruptions_have_a_limit_where_one_is_set(team: Team) -> None:
    team.apply(a_job(annotations=FOR_LONG, restart={"maxDisruptions": 1, "backoffSeconds": 0}))
    for attempt in (1, 2):
        team.until(f"{{.status.attempt}}={attempt}")
        team.until("{.status.state}=Running")
        team.delete("pods", team.pod(0))
    status = team.wait("Failed")
    assert "more than 1 disruption (maxDisruptions)" in status["message"]
