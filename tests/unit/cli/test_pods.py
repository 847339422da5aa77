"""Which of a job's pods are the present ones, and whether they have a log."""

from typing import Any

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


def test_the_present_pods_are_the_last_of_each_rank() -> None:
    pods = [Pod.of(document(rank, incarnation)) for rank, incarnation in ((1, 1), (0, 2), (10, 1), (0, 1), (0, 3))]
    assert [(pod.rank, pod.incarnation) for pod in present(pods)] == [(0, 3), (1, 1), (10, 1)]
    assert [(pod.rank, pod.incarnation) for pod in previous(pods)] == [(0, 2)]
    assert previous([]) == []
