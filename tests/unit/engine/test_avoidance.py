"""Kubernetes nodes that are broken: no pod is placed on them, until a gang finds no others."""

import json
from dataclasses import replace

import pytest
from ddpjob_operator.api import Cause
from ddpjob_operator.engine import Event

from .builders import Moment, a_job, told
from .tables import Table, rows, verdict
from .test_way import NO_ROOM, lacking

two = a_job(nodes=2, restart={"backoffSeconds": 0})


def breaks(moment: Moment, rank: int = 1) -> Moment:
    """A GPU of a rank's machine fails, and the gang is about to start again."""
    return moment.after(60).reports(rank, cause="DeviceFailed", message="Xid 79").decided()


def half(moment: Moment) -> Moment:
    """Of the next attempt, rank 0 has a node, and the scheduler finds none for rank 1."""
    return lacking(moment.ready_again().created().placed(0), 1)


@told
def elsewhere(moment: Moment) -> Moment:
    """Rank 1 is placed on another Kubernetes node than ever."""
    return moment._each((1,), lambda pod: replace(pod, node_name="node-7"))


def loses_twice(moment: Moment) -> Moment:
    """A Kubernetes node is lost, comes back, and is lost again."""
    return moment.node_dies(1).decided().gone().restarted().after(60).node_dies(1).decided().gone()


broken = breaks(two.running())
waits = half(broken)
back = waits.after(60).decided().ready_again().running()
in_place = loses_twice(a_job(nodes=3, restart={"mode": "InPlace", "backoffSeconds": 0}).running().hears().settled())
alone = lacking(in_place.created(), 1)

WAITS = f"0 of 2 pods running; rank 1: Unschedulable: {NO_ROOM} (ruled out as broken: node-1 (DeviceFailed))"
LIFTED = "Rank 1 found no other Kubernetes node within 60 s: pods may be placed on node-1 (DeviceFailed) again"
LOST_TWICE = LIFTED.replace("DeviceFailed", "NodeLost")
BACK = "rank 1 could only be placed on a Kubernetes node that is avoided: node-1 (DeviceFailed)"
ALL, ONE = "-2.0/5 -2.1/5", "-3.1/5"

TABLE: Table = {
    "a pod waits for another Kubernetes node than a broken one": (waits.after(59), "", "Restarting", WAITS),
    "but only for a minute: then the gang as a whole may use it again": (waits.after(60), ALL, "Pending", LIFTED),
    "which stands in its status before anything is deleted": (
        waits.after(60).said(),
        ALL,
        "Pending",
        "Waiting for 2 pods of the previous attempt to stop",
    ),
    "or for as long as the administrator says": (
        waits.allows(avoid_broken_nodes_seconds=5).after(5),
        ALL,
        "Pending",
        LIFTED.replace("60 s", "5 s"),
    ),
    "and goes back to it": (back, "", "Running", f"2 nodes running; {BACK}"),
    "which is said for as long as the node is avoided": (
        back.after(3599 - 60),
        "",
        "Running",
        f"2 nodes running; {BACK}",
    ),
    "and no longer": (back.after(3600), "", "Running", "2 nodes running"),
    "on this machine it is no Kubernetes node": (
        back.allows(host="machine"),
        "",
        "Running",
        f"2 nodes running; {BACK.replace('Kubernetes node', 'machine')}",
    ),
    "nobody goes back who finds another one": (
        elsewhere(broken.ready_again().created()).running().after(600),
        "",
        "Running",
        "2 nodes running",
    ),
    "all pods of a gang that is placed as a whole may lack a node": (
        lacking(broken.ready_again().created(), 0, 1).after(60),
        ALL,
        "Pending",
        LIFTED.replace("Rank 1", "Rank 0 and 1 more"),
    ),
    "not every scheduler says that it finds none": (
        broken.ready_again().created().placed(0).after(60),
        ALL,
        "Pending",
        LIFTED,
    ),
    "a pod that is held back by gates waits for who set them": (
        waits.waits(1, "SchedulingGated").after(599),
        "",
        "Restarting",
        "0 of 2 pods running; rank 1: SchedulingGated (ruled out as broken: node-1 (DeviceFailed))",
    ),
    "a pod for which others are preempted is about to be placed": (
        waits.nominated(1).after(599),
        "",
        "Restarting",
        WAITS,
    ),
    "a gang does not give back what it holds because it avoids a node": (
        half(breaks(a_job(nodes=2, scheduleTimeoutSeconds=10).running())).after(12),
        ALL,
        "Pending",
        LIFTED.replace("60 s", "12 s"),
    ),
    "nor does it give way to another gang": (
        waits.behind().after(15),
        ALL,
        "Pending",
        LIFTED.replace("60 s", "15 s"),
    ),
    "where an autoscaler adds nodes they are waited for": (
        waits.behind().after(15).scales_up(),
        "",
        "Restarting",
        WAITS,
    ),
    "an elastic gang may go on without the pod before that": (
        half(breaks(a_job(nodes=2, elastic={"minNodes": 1, "shrinkAfterSeconds": 30}).running())).after(30),
        ALL,
        "Restarting",
        "1 of 2 pods could be scheduled within 30 s: continuing with these",
    ),
    "if the others have run and wait for a single pod, this one is made anew": (
        alone.after(60),
        ONE,
        "Restarting",
        LOST_TWICE,
    ),
    "that stands in the status, too, before it is deleted": (
        alone.after(60).said(),
        ONE,
        "Restarting",
        "Waiting for 1 pod of the previous attempt to stop",
    ),
    "and is made at once": (alone.after(60).decided().gone(), "+4.1", "Restarting", "Creating 1 of 3 pods"),
}


@rows(TABLE)
def test_broken_nodes(moment: Moment, expected: tuple[str, str, str]) -> None:
    assert verdict(moment) == expected


def avoided(moment: Moment) -> dict[str, tuple[str | None, bool]]:
    """Why each Kubernetes node is avoided, and whether it is ruled out."""
    return {one.node_name: (one.cause, one.required) for one in moment.status.avoided_node_names}


RULED_OUT: dict[str, tuple[Moment, dict[str, tuple[str | None, bool]]]] = {
    "a device failed": (broken, {"node-1": (Cause.DEVICE_FAILED, True)}),
    "lost once": (two.running().node_dies(1).decided(), {"node-1": (Cause.NODE_LOST, False)}),
    "lost twice": (loses_twice(two.running()), {"node-1": (Cause.NODE_LOST, True)}),
    "lost twice in place": (in_place, {"node-1": (Cause.NODE_LOST, True)}),
    "lost twice, with two hours between": (
        two.running().node_dies(1).decided().gone().restarted().after(7200).node_dies(1).decided(),
        {"node-1": (Cause.NODE_LOST, False)},
    ),
    "lost, and then its device fails": (
        breaks(two.running().node_dies(1).decided().gone().restarted()),
        {"node-1": (Cause.DEVICE_FAILED, True)},
    ),
    "silent for long, after a single loss": (
        two.running().after(60).fails(0, message="Connection closed by peer", at=-10).decided().overdue(1).decided(),
        {"node-1": (Cause.NODE_LOST, False)},
    ),
    "no other was found": (waits.after(60).decided(), {"node-1": (Cause.DEVICE_FAILED, False)}),
    "no other was found, and it fails again": (breaks(back), {"node-1": (Cause.DEVICE_FAILED, True)}),
    "nobody is to wait": (
        breaks(two.running().allows(avoid_broken_nodes_seconds=0)),
        {"node-1": (Cause.DEVICE_FAILED, False)},
    ),
}


@pytest.mark.parametrize(("moment", "expected"), RULED_OUT.values(), ids=RULED_OUT)
def test_a_node_is_ruled_out_if_it_is_broken(moment: Moment, expected: dict[str, tuple[str | None, bool]]) -> None:
    assert avoided(moment) == expected
    assert avoided(moment.settled()) == expected, "each look that follows leaves it at that"


def test_a_device_that_a_rank_reports_only_later_counts_as_well() -> None:
    lost = two.running().placed(0, 1).reports(0, code=204, cause="PeerLost", message="lost").after(11).decided()
    assert avoided(lost) == {}
    report = json.dumps({"version": 2, "cause": "DeviceFailed", "message": "Xid 79"})
    assert avoided(lost.former_fails(1, message=report).decided()) == {"node-1": (Cause.DEVICE_FAILED, True)}


def test_the_message_is_changed_when_the_node_is_no_longer_avoided() -> None:
    (avoided,) = back.status.avoided_node_names
    assert back.decision.wake_at == avoided.until


@pytest.mark.parametrize("moment", [waits.after(60), alone.after(60)], ids=["all", "alone"])
def test_that_it_goes_back_is_an_event(moment: Moment) -> None:
    event = Event(warning=True, reason="AvoidanceLifted", message=LIFTED if moment.status.nodes == 2 else LOST_TWICE)
    assert event in moment.decision.events


def test_it_waits_once_for_each_failure() -> None:
    """What is decided stands in the job's object, and no operator that comes later waits again."""
    assert half(waits.after(60).decided()).read_anew().after(599).settled().status.attempt == 3
    assert verdict(half(breaks(back)).after(60))[2] == LIFTED
