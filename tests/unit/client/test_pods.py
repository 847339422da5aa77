"""Which of a job's pods are the present ones, and whether they have a log."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from ddpjob_operator.api import Bookkeeping, Cause, DDPJobStatus, Incarnations, Incident, NodeIncarnation
from ddpjob_operator.client import JobPod, of_attempt, present, previous_attempt

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def document(
    rank: int, incarnation: int, state: dict[str, Any] | None = None, attempt: int | None = None
) -> dict[str, Any]:
    labels = {"ddpjob.dev/node": str(rank), "ddpjob.dev/incarnation": str(incarnation)}
    name = f"digits-{rank}-{incarnation}"
    statuses = [{"name": "sidecar", "state": {"running": {}}}, {"name": "trainer", "state": state or {}}]
    env = [{"name": "DDPJOB_ATTEMPT", "value": str(attempt or incarnation)}]
    return {
        "spec": {"containers": [{"name": "sidecar"}, {"name": "trainer", "env": env}]},
        "metadata": {"name": name, "namespace": "default", "uid": name, "labels": labels},
        "status": {"containerStatuses": statuses} if state is not None else {},
    }


def test_a_log_is_there_once_the_trainer_runs_whatever_its_sidecars_do() -> None:
    states = (None, {}, {"waiting": {"reason": "ImagePullBackOff"}}, {"running": {}}, {"terminated": {}})
    pods = [JobPod.of(document(0, 1, state)) for state in states]
    assert [pod.started for pod in pods] == [False, False, False, True, True]
    assert [pod.ended for pod in pods] == [False, False, False, False, True]


RUNNING: dict[str, Any] = {"running": {}}
ENDED: dict[str, Any] = {"terminated": {}}
PODS = [
    JobPod.of(document(*place, state))
    for *place, state in ((1, 1, ENDED), (2, 2, ENDED), (10, 3, RUNNING), (0, 3, RUNNING), (11, 3, {}), (0, 2, {}))
]
"""Kept of the first two attempts the pod that failed first; of the third all, and one beyond its size of 11."""


def at(attempt: int, nodes: int | None = 11) -> DDPJobStatus:
    return DDPJobStatus(
        attempt=attempt, nodes=nodes, bookkeeping=Bookkeeping(incarnations=Incarnations(default=attempt))
    )


@pytest.mark.parametrize(
    ("status", "now", "before"),
    [
        (at(3), [(0, 3), (10, 3)], [(2, 2)]),
        (at(3, nodes=12), [(0, 3), (10, 3), (11, 3)], [(2, 2)]),
        (at(4), [], [(0, 3), (10, 3)]),
        (at(2), [(0, 2), (2, 2)], [(1, 1)]),
        (at(1), [(1, 1)], []),
        (at(0, nodes=None), [], []),
    ],
    ids=["a pod beyond the size", "all within", "between attempts", "second", "first", "not started"],
)
def test_pods_of_the_present_attempt_are_told_from_those_that_are_kept_and_those_that_wait_for_room(
    status: DDPJobStatus, now: list[tuple[int, int]], before: list[tuple[int, int]]
) -> None:
    assert [(pod.node, pod.incarnation) for pod in present(PODS, status)] == now
    former = of_attempt(PODS, status, previous_attempt(PODS, status))
    assert [(pod.node, pod.incarnation) for pod in former if pod.started] == before


def in_place(attempt: int, *failures: tuple[int, int], lost: int | None = None) -> DDPJobStatus:
    """A gang of two that restarted in place when these ranks failed; one pod may have been replaced."""
    incidents = tuple(
        Incident(attempt=ended, node=rank, pod=f"digits-{rank}-1", cause=Cause.APPLICATION, time=NOON)
        for ended, rank in reversed(failures)
    )
    exceptions = () if lost is None else (NodeIncarnation(node=lost, incarnation=2),)
    bookkeeping = Bookkeeping(incarnations=Incarnations(default=1, exceptions=exceptions))
    return DDPJobStatus(attempt=attempt, nodes=2, incidents=incidents, bookkeeping=bookkeeping)


GANG = [JobPod.of(document(rank, 1, RUNNING, 1)) for rank in (0, 1)]
REPLACED = [GANG[0], JobPod.of(document(1, 1, ENDED, 1)), JobPod.of(document(1, 2, RUNNING, 4))]


@pytest.mark.parametrize(
    ("pods", "status", "attempts"),
    [
        (GANG, in_place(3, (1, 0), (2, 1)), {1: [(0, 1), (1, 1)], 2: [(0, 1), (1, 1)], 3: [(0, 1), (1, 1)], 4: []}),
        (
            REPLACED,
            in_place(4, (1, 0), (2, 1), (3, 1), lost=1),
            {1: [(0, 1), (1, 1)], 3: [(0, 1), (1, 1)], 4: [(0, 1), (1, 2)]},
        ),
    ],
    ids=["restarted in place", "one pod replaced"],
)
def test_a_pod_takes_part_in_all_attempts_until_its_end(
    pods: list[JobPod], status: DDPJobStatus, attempts: dict[int, list[tuple[int, int]]]
) -> None:
    found = {attempt: of_attempt(pods, status, attempt) for attempt in attempts}
    assert {attempt: [(pod.node, pod.incarnation) for pod in found[attempt]] for attempt in found} == attempts
    assert previous_attempt(pods, status) == status.attempt - 1
    assert present(pods, status) == found[status.attempt]


GOLDEN = sorted((Path(__file__).parents[1] / "golden").glob("pod-[!g]*.yaml"))
"""Pods as the operator makes them, with a supervisor and without."""


@pytest.mark.parametrize("file", GOLDEN, ids=lambda file: file.stem)
def test_the_attempt_that_it_was_made_for_is_read_of_every_pod(file: Path) -> None:
    pod = yaml.safe_load(file.read_text(encoding="utf-8"))
    pod["metadata"]["uid"] = "1"
    assert JobPod.of(pod).attempt == (2 if "after" in file.stem else 1)


def status_of(name: str, **state: Any) -> dict[str, Any]:
    return {"name": name, "state": state}


@pytest.mark.parametrize(
    ("case", "status", "does", "scheduled", "begun"),
    [
        ("nothing is known", {}, "", "", ""),
        ("it waits for a node", {"phase": "Pending", "conditions": [
            {"type": "PodScheduled", "status": "False", "lastTransitionTime": "12:01"}]}, "Pending", "", ""),
        ("it is scheduled", {"phase": "Pending", "conditions": [
            {"type": "Ready", "status": "True", "lastTransitionTime": "12:03"},
            {"type": "PodScheduled", "status": "True", "lastTransitionTime": "12:02"}]}, "Pending", "12:02", ""),
        ("no time is known", {"conditions": [{"type": "PodScheduled", "status": "True"}]}, "", "", ""),
        ("an init container waits", {
            "phase": "Pending",
            "initContainerStatuses": [status_of("wait", waiting={"reason": "ImagePullBackOff"})],
            "containerStatuses": [status_of("trainer", waiting={"reason": "PodInitializing"})],
         }, "ImagePullBackOff", "", ""),
        ("all have begun", {
            "phase": "Running",
            "initContainerStatuses": [status_of("wait", terminated={"startedAt": "12:03"})],
            "containerStatuses": [status_of("a", running={}), status_of("b", running={"startedAt": "12:04"})],
         }, "Running", "", "12:03"),
    ],
)  # fmt: skip
def test_what_a_pod_does_and_since_when(
    case: str, status: dict[str, Any], does: str, scheduled: str, begun: str
) -> None:
    pod = JobPod.of(document(0, 1) | {"status": status})
    assert (pod.does, pod.scheduled, pod.begun) == (does, scheduled, begun), case


def test_all_that_is_read_of_a_pod() -> None:
    found = document(3, 2, RUNNING, 5)
    found["metadata"] |= {"creationTimestamp": "12:00", "finalizers": ["a", "b"]}
    found["spec"] |= {"nodeName": "gpu-4", "initContainers": [{"name": "wait"}, {"name": "install-packages"}]}
    assert JobPod.of(found) == JobPod(
        *("digits-3-2", "default", "digits-3-2", 3, 2, 5),
        started=True,
        ended=False,
        installs=True,
        finalizers=("a", "b"),
        node_name="gpu-4",
        created="12:00",
    )
    bare = JobPod.of(document(3, 2))
    assert (bare.installs, bare.finalizers, bare.node_name, bare.created, bare.runs) == (False, (), "", "", False)
