"""Which of a job's pods are the present ones, and whether they have a log."""

from typing import Any

import pytest
from ddpjob_operator.api import DDPJobStatus
from ddpjob_operator.api.status import Incarnations
from ddpjob_operator.client import Pod, present, previous


def document(rank: int, incarnation: int, state: dict[str, Any] | None = None) -> dict[str, Any]:
    labels = {"ddpjob.dev/rank": str(rank), "ddpjob.dev/incarnation": str(incarnation)}
    name = f"digits-{rank}-{incarnation}"
    statuses = [{"name": "sidecar", "state": {"running": {}}}, {"name": "trainer", "state": state or {}}]
    return {
        "metadata": {"name": name, "namespace": "default", "uid": name, "labels": labels},
        "status": {"containerStatuses": statuses} if state is not None else {},
    }


def test_a_log_is_there_once_the_trainer_runs_whatever_its_sidecars_do() -> None:
    states = (None, {}, {"waiting": {"reason": "ImagePullBackOff"}}, {"running": {}}, {"terminated": {}})
    pods = [Pod.of(document(0, 1, state)) for state in states]
    assert [pod.started for pod in pods] == [False, False, False, True, True]
    assert [pod.ended for pod in pods] == [False, False, False, False, True]


RUNNING: dict[str, Any] = {"running": {}}
ENDED: dict[str, Any] = {"terminated": {}}
PODS = [
    Pod.of(document(*place, state))
    for *place, state in ((1, 1, ENDED), (2, 2, ENDED), (10, 3, RUNNING), (0, 3, RUNNING), (11, 3, {}), (0, 2, {}))
]
"""Kept of the first two attempts the pod that failed first; of the third all, and one beyond its size of 11."""


def at(attempt: int, nodes: int | None = 11) -> DDPJobStatus:
    return DDPJobStatus(attempt=attempt, nodes=nodes, incarnations=Incarnations(default=attempt))


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
    assert [(pod.rank, pod.incarnation) for pod in present(PODS, status)] == now
    assert [(pod.rank, pod.incarnation) for pod in previous(PODS, status)] == before
