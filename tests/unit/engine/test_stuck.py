"""Pods that are stuck on nodes that do not answer: nobody waits for them for ever, and the nodes are avoided."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from ddpjob_operator.engine import CreatePod

from .builders import NO_IMAGE, START, Moment, a_job
from .tables import Table, rows, verdict

two = a_job(nodes=2, restart={"backoffSeconds": 0, "maxRestarts": 99})
lost_node = two.running().node_dies(1).decided().gone_but(1)
many = a_job(nodes=20, restart={"backoffSeconds": 0, "maxRestarts": 99})
permitted = lost_node.allows(force_delete_lost_pods=True)
hour = timedelta(hours=1)

LOST = "NodeLost: Taint manager: deleting due to NoExecute taint"
RUNS_THERE = "2 nodes running; rank 1 could only be placed on a Kubernetes node that is avoided: node-1 (NodeLost)"
TABLE: Table = {
    "the survivors of a lost node end soon, and so does, for the API, its own pod": (
        two.running().node_dies(1),
        "-1.0/5 -1.1/5",
        "Restarting",
        f"Rank 1 failed: {LOST}; restart (not counted) in 0.0 s",
    ),
    "a pod that is about to go anyway is not deleted again": (
        two.running().node_dies(1).after(21),
        "-1.0/5",
        "Restarting",
        f"Rank 1 failed: {LOST}; restart (not counted) in 0.0 s",
    ),
    "the node tells more, where one may ask it": (
        two.running().node_dies(1).node_has("node-1", "is not ready: Kubelet stopped posting node status."),
        "-1.0/5 -1.1/5",
        "Restarting",
        (
            "Rank 1 failed: NodeLost: Kubernetes node node-1 is not ready: Kubelet stopped posting node status.; "
            "restart (not counted) in 0.0 s"
        ),
    ),
    "also of a pod of which nobody else says why it goes": (
        two.running().deleted_by_hand(1).node_has("node-1", "is gone"),
        "-1.0/5",
        "Restarting",
        "Rank 1 failed: NodeLost: Kubernetes node node-1 is gone; restart (not counted) in 0.0 s",
    ),
    "the problem of another node is none": (
        two.running().deleted_by_hand(1).node_has("node-0", "is gone"),
        "-1.0/full",
        "Restarting",
        "Rank 1 failed: PodDeleted: the pod is being deleted; restart (not counted) in 0.0 s",
    ),
    "its pod may still run until it is overdue": (
        lost_node.after(14),
        "",
        "Restarting",
        "Waiting for 1 pod of the previous attempt to stop",
    ),
    "and is not waited for after that, although it never goes": (
        lost_node.after(15),
        "+2.0 +2.1",
        "Restarting",
        "Creating 2 of 2 pods",
    ),
    "nor is it in the way of the next attempt": (
        lost_node.after(15).settled().runs(0, 1),
        "",
        "Running",
        RUNS_THERE,
    ),
    "nor of its end": (
        lost_node.after(15).running().succeeds(0, 1),
        "",
        "Succeeded",
        "2 nodes finished",
    ),
    "when it goes at last nothing happens": (
        lost_node.after(15).running().after(600).gone(),
        "",
        "Running",
        RUNS_THERE,
    ),
    "when it comes back, failed, nothing happens either": (
        lost_node.after(15).running().former_fails(1, code=137),
        "",
        "Running",
        RUNS_THERE,
    ),
    "a job may fail although it is stuck": (
        a_job(nodes=2, restart={"maxRestarts": 0}).running().fails(0, message="boom").decided().overdue(1),
        "",
        "Failed",
        "Rank 0 failed: Application: boom; no restarts left (maxRestarts: 0)",
    ),
    "and be suspended": (
        two.running().asks(suspend=True).decided().overdue(1),
        "",
        "Suspended",
        "Nothing runs until the job is resumed",
    ),
    # removed by force
    "a pod that is not overdue is not removed by force, permitted or not": (
        permitted.after(14),
        "",
        "Restarting",
        "Waiting for 1 pod of the previous attempt to stop",
    ),
    "one that is overdue is, where that is permitted": (
        permitted.after(15),
        "+2.0 +2.1 -1.1/0",
        "Restarting",
        "Creating 2 of 2 pods",
    ),
    "but not while the job has still to account for it: another one of its name would be made": (
        two.decided().runs(1).node_dies(1).nameless().after(40).allows(force_delete_lost_pods=True),
        "",
        "Pending",
        NO_IMAGE,
    ),
    "once: what a finalizer keeps is nobody's to remove": (
        permitted.after(15).kept_by_a_finalizer(1),
        "+2.0 +2.1",
        "Restarting",
        "Creating 2 of 2 pods",
    ),
    "one that has ended is not: its log may still be read": (
        permitted.former_fails(1, code=143).after(15),
        "+2.0 +2.1",
        "Restarting",
        "Creating 2 of 2 pods",
    ),
    "it is also after the job's end": (
        a_job(nodes=2, restart={"maxRestarts": 0})
        .running()
        .fails(0, message="boom")
        .decided()
        .overdue(1)
        .settled()
        .allows(force_delete_lost_pods=True),
        "-1.1/0",
        "Failed",
        "Rank 0 failed: Application: boom; no restarts left (maxRestarts: 0)",
    ),
}


@rows(TABLE)
def test_stuck_pods(moment: Moment, expected: tuple[str, str, str]) -> None:
    assert verdict(moment) == expected


def avoided(moment: Moment) -> dict[str, Any]:
    """The nodes that the job keeps away from, and for how long from the start of all moments."""
    return {one.node_name: one.until - START for one in moment.status.avoided_node_names}


def test_a_lost_node_is_avoided_for_an_hour() -> None:
    assert avoided(lost_node) == {"node-1": hour}
    again = lost_node.after(3599).restarted().fails(0).decided()
    assert avoided(again) == {"node-1": hour}
    assert avoided(again.after(1).restarted().fails(0).decided()) == {}


def test_a_node_that_does_not_take_a_pod_is_avoided_too() -> None:
    reason = "UnexpectedAdmissionError"
    moment = two.running().fails(1, code=None, reason=reason)
    turned_away = moment._each((1,), lambda pod: replace(pod, reason=reason, node_name="node-1")).decided()
    assert avoided(turned_away) == {"node-1": hour}


def test_a_node_with_a_broken_gpu_is_avoided_too() -> None:
    moment = two.running().placed(0, 1).reports(1, cause="DeviceFailed").decided()
    assert moment.status.last_incident is not None
    assert moment.status.last_incident.action == "RestartFree"
    assert avoided(moment) == {"node-1": hour}


def test_one_that_is_found_silent_later_is_avoided_too() -> None:
    moment = two.running().fails(0, message="Connection closed by peer", at=-10).decided().overdue(1).decided()
    assert avoided(moment) == {"node-1": hour}


def test_one_from_which_pods_were_taken_for_another_reason_is_not() -> None:
    for reason in ("EvictionByEvictionAPI", "PreemptionByScheduler"):
        assert avoided(two.running().disrupted(1, reason).decided()) == {}


def test_one_that_is_lost_again_after_the_hour_is_avoided_again() -> None:
    later = lost_node.restarted().after(7200).node_dies(1).decided()
    assert avoided(later) == {"node-1": later.snapshot.now + hour - START}


def test_eight_are_remembered_the_newest() -> None:
    moment = a_job(nodes=10, restart={"backoffSeconds": 0, "maxRestarts": 99}).running()
    for rank in range(10):
        moment = moment.node_dies(rank).decided().gone().restarted()
    assert list(avoided(moment)) == [f"node-{rank}" for rank in range(2, 10)]


@pytest.mark.parametrize("lost", [8, 9, 17])
def test_of_a_rack_that_is_silent_eight_are_remembered_and_that_is_told_once(lost: int) -> None:
    silent = many.running().fails(19, message="Connection closed by peer", at=-10).decided().overdue(*range(lost))
    moment = silent.settled()
    assert list(avoided(moment)) == [f"node-{rank}" for rank in range(8)]
    assert moment.after(30).decision.status is None


def test_a_node_that_is_lost_while_a_rack_is_silent_is_remembered_too() -> None:
    rack = many.running().fails(19).decided().overdue(*range(12)).running()
    assert list(avoided(rack.node_dies(15).settled())) == [*(f"node-{rank}" for rank in range(1, 8)), "node-15"]


def test_the_next_pods_prefer_other_nodes() -> None:
    made = [action.build() for action in lost_node.after(15).decision.actions if isinstance(action, CreatePod)]
    term = {"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["node-1"]}]}
    for pod in made:
        preferred = pod["spec"]["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
        assert preferred == [{"weight": 100, "preference": term}]
    assert len(made) == 2


def test_nodes_are_asked_about_only_where_pods_are_taken_away() -> None:
    running = two.running()
    questions = {
        "nobody goes": running,
        "one goes": running.node_dies(1),
        "one is driven away, and has saved and ended": running.node_dies(1).succeeds(1),
        "we take them away": running.asks(suspend=True).decided(),
        "the end is decided": running.succeeds(0, 1).decided(),
        "both go": running.node_dies(0, 1),
    }
    asked = {what: sorted(moment.asked.answered.node_names) for what, moment in questions.items()}
    assert asked == {
        "nobody goes": [],
        "one goes": ["node-1"],
        "one is driven away, and has saved and ended": ["node-1"],
        "we take them away": [],
        "the end is decided": [],
        "both go": ["node-0", "node-1"],
    }
    rack = a_job(nodes=20).running().node_dies(*range(20))
    assert len(rack.asked.answered.node_names) == 8
