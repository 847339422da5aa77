from datetime import UTC, datetime
from typing import Any

import pytest
from ddpjob_operator.cluster.observing import pod_of
from ddpjob_operator.engine import Exit

from .manifests import a_pod, trainer

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
NOON_TEXT = "2026-01-01T12:00:00Z"

UNSCHEDULABLE = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no nodes"}
PULLING = {"reason": "ImagePullBackOff", "message": "no such image"}

WAITING: dict[str, tuple[dict[str, Any], str]] = {
    "nothing is known yet": ({"phase": "Pending"}, ""),
    "no node has room": ({"phase": "Pending", "conditions": [UNSCHEDULABLE]}, "Unschedulable: no nodes"),
    "containers are made": (
        {"phase": "Pending", "containerStatuses": trainer(waiting={"reason": "ContainerCreating"})},
        "",
    ),
    "the image cannot be pulled": (
        {"phase": "Pending", "containerStatuses": trainer(waiting=PULLING)},
        "ImagePullBackOff: no such image",
    ),
    "an init container's image cannot be pulled": (
        {"phase": "Pending", "initContainerStatuses": [{"name": "fetch", "state": {"waiting": PULLING}}]},
        "ImagePullBackOff: no such image",
    ),
    "the master's port is waited for": (
        {"phase": "Pending", "initContainerStatuses": [{"name": "wait-for-master", "state": {"running": {}}}]},
        "waiting for the master's port",
    ),
    "an init container of the template runs": (
        {"phase": "Pending", "initContainerStatuses": [{"name": "fetch", "state": {"running": {}}}]},
        "init container fetch runs",
    ),
    "the trainer runs": ({"containerStatuses": trainer(running={})}, ""),
}


@pytest.mark.parametrize(("status", "expected"), WAITING.values(), ids=WAITING)
def test_a_pod_says_why_it_waits(status: dict[str, Any], expected: str) -> None:
    pod = pod_of(a_pod(**status))
    assert pod is not None
    assert str(pod.waiting or "") == expected
    assert pod.active


FAILED_INIT = {
    "name": "fetch",
    "state": {"terminated": {"exitCode": 3, "finishedAt": NOON_TEXT, "message": "no data"}},
}

NO_PYTHON = {"exitCode": 1, "message": '{"cause": "ConfigError"}'}
FAILED_WAIT = {"name": "wait-for-master", "state": {"terminated": NO_PYTHON}}

EXITS: dict[str, tuple[dict[str, Any], Exit | None]] = {
    "the trainer runs": ({"containerStatuses": trainer(running={})}, None),
    "the trainer is done": (
        {"containerStatuses": trainer(terminated={"exitCode": 0, "reason": "Completed", "finishedAt": NOON_TEXT})},
        Exit(0, "Completed", "", NOON),
    ),
    "the trainer was killed for its memory": (
        {"containerStatuses": trainer(terminated={"exitCode": 137, "reason": "OOMKilled", "message": "{}"})},
        Exit(137, "OOMKilled", "{}", None),
    ),
    "the pod was evicted before it ran": (
        {"phase": "Failed", "reason": "Evicted", "message": "low on disk"},
        Exit(None, "Evicted", "low on disk", None),
    ),
    "the pod was evicted while its trainer ran": (
        {"phase": "Failed", "reason": "Evicted", "message": "m", "containerStatuses": trainer(running={})},
        Exit(None, "Evicted", "m", None),
    ),
    "the wait for the master failed and said why": (
        {"phase": "Failed", "initContainerStatuses": [FAILED_WAIT]},
        Exit(None, "InitContainerFailed", '{"cause": "ConfigError"}', None),
    ),
    "an init container failed": (
        {"phase": "Failed", "initContainerStatuses": [FAILED_INIT]},
        Exit(None, "InitContainerFailed", "init container fetch: no data", NOON),
    ),
}


@pytest.mark.parametrize(("status", "expected"), EXITS.values(), ids=EXITS)
def test_the_result_of_a_rank_is_the_exit_of_its_trainer(status: dict[str, Any], expected: Exit | None) -> None:
    pod = pod_of(a_pod(**status))
    assert pod is not None
    assert pod.exit == expected
    assert pod.running == (expected is None)


def test_other_containers_that_outlive_the_trainer_linger() -> None:
    proxy, done = trainer(terminated={"exitCode": 0})
    beside, alone = pod_of(a_pod(containerStatuses=[proxy, done])), pod_of(a_pod(containerStatuses=[done]))
    assert beside is not None
    assert alone is not None
    assert beside.lingering
    assert not alone.lingering, "although its phase is Running for a moment more: deleting it would lose its log"


def test_a_pod_that_is_being_deleted_says_until_when() -> None:
    manifest = a_pod()
    manifest["metadata"]["deletionTimestamp"] = NOON_TEXT
    pod = pod_of(manifest)
    assert pod is not None
    assert (pod.deleting, pod.gone_by) == (True, NOON)


FOREIGN: dict[str, dict[str, Any]] = {
    "controlled by another object than its label says": {"owner": "somebody-else"},
    "without a rank that is a number": {"rank": "first"},
    "without an incarnation that is a number": {"incarnation": ""},
}


@pytest.mark.parametrize("what", FOREIGN.values(), ids=FOREIGN)
def test_no_pod_of_a_job_is_one(what: dict[str, Any]) -> None:
    assert pod_of(a_pod(**what)) is None
