"""Gangs that compete for nodes: which of them gives way, when, and when it tries again."""

from typing import Any

import pytest
from ddpjob_operator.engine import Needs, kind_of_kubernetes_nodes
from ddpjob_operator.engine.decide import decide

from .builders import TEMPLATE, Moment, a_job
from .tables import Table, rows, verdict

NO_ROOM = "0/5 nodes are available: 5 Insufficient nvidia.com/gpu."


def lacking(moment: Moment, *ranks: int) -> Moment:
    """The scheduler finds no node for the pods of these ranks."""
    for rank in ranks:
        moment = moment.waits(rank, "Unschedulable", NO_ROOM)
    return moment


def half(**spec: Any) -> Moment:
    """Two of four pods have nodes, and the scheduler finds none for the others."""
    return lacking(a_job(nodes=4, **spec).created().placed(0, 1), 2, 3)


def with_template(**spec: Any) -> dict[str, Any]:
    return {"template": {"spec": {**TEMPLATE["spec"], **spec}}}


stuck = half().behind()
away = stuck.after(15).decided().gone()
WAITS = f"0 of 4 pods running; rank 2 and 1 more: Unschedulable: {NO_ROOM}"
ALL_BACK = "-1.0/5 -1.1/5 -1.2/5 -1.3/5"
GIVES_WAY = (
    "2 of 4 pods could be scheduled, with 1 job ahead in line: stopping all pods, and trying again when "
    "the job is first in line, or in 15 s if nothing changes"
)
GIVING_BACK = "stopping all pods, and trying again"
in_place = a_job(nodes=4, restart={"mode": "InPlace"}).running().hears().settled()
TABLE: Table = {
    # who gives way
    "a gang that others wait for gives it time to find the rest": (stuck.after(14), "", "Starting", WAITS),
    "and then gives back what it holds": (stuck.after(15), ALL_BACK, "Pending", GIVES_WAY),
    "also if its operator died before it did": (stuck.after(15).said(), ALL_BACK, "Pending", GIVES_WAY),
    "one that comes first keeps what it holds": (half().after(599), "", "Starting", WAITS),
    "until it has held it for too long": (
        half().after(720),
        ALL_BACK,
        "Pending",
        f"2 of 4 pods could be scheduled within 600 s (scheduleTimeoutSeconds): {GIVING_BACK} in 0.9 s",
    ),
    "one that has all its nodes needs nobody's": (stuck.placed(2, 3).after(300), "", "Starting", WAITS),
    "one that holds nothing is in nobody's way": (
        lacking(a_job(nodes=2).created(), 0, 1).behind().after(1e6),
        "",
        "Starting",
        f"0 of 2 pods running; rank 0 and 1 more: Unschedulable: {NO_ROOM}",
    ),
    "the longer the line, the longer it stays away": (
        half().behind(3).after(15),
        ALL_BACK,
        "Pending",
        GIVES_WAY.replace("1 job", "3 jobs").replace("in 15 s", "in 45 s"),
    ),
    "but never for longer than it may hold nodes": (
        half().behind(1000).after(15),
        ALL_BACK,
        "Pending",
        GIVES_WAY.replace("1 job", "1000 jobs").replace("in 15 s", "in 600 s"),
    ),
    # who waits for something that is on its way
    "a pod that was placed lately may be followed by others": (
        stuck.after(14).placed(2).after(14),
        "",
        "Starting",
        f"0 of 4 pods running; rank 2: Unschedulable: {NO_ROOM}",
    ),
    "a pod of which the scheduler has said nothing may be placed yet": (
        a_job(nodes=2).created().placed(0).behind().after(500),
        "",
        "Starting",
        "0 of 2 pods running; rank 0: starting on Kubernetes node node-0",
    ),
    "a pod that is held back by gates waits for who set them": (
        a_job(nodes=2).created().placed(0).waits(1, "SchedulingGated").behind().after(500),
        "",
        "Starting",
        "0 of 2 pods running; rank 1: SchedulingGated",
    ),
    "a pod for which others are preempted is about to be placed": (
        stuck.nominated(2).after(500),
        "",
        "Starting",
        WAITS,
    ),
    "where an autoscaler adds nodes they are waited for": (stuck.after(500).scales_up(), "", "Starting", WAITS),
    "until all are given back": (
        stuck.after(720).scales_up(),
        ALL_BACK,
        "Pending",
        f"2 of 4 pods could be scheduled within 600 s (scheduleTimeoutSeconds): {GIVING_BACK} in 0.9 s",
    ),
    "an elastic gang that is about to go on with what it has does that": (
        half(elastic={"minNodes": 2}).behind().after(119),
        "",
        "Starting",
        WAITS,
    ),
    "but it gives way if that is too little": (
        half(elastic={"minNodes": 3}).behind().after(15),
        ALL_BACK,
        "Pending",
        GIVES_WAY,
    ),
    "a gang that has run and waits for one pod keeps what it holds": (
        in_place.node_dies(1).settled().gone().settled().waits(1, "Unschedulable").behind().after(500),
        "",
        "Restarting",
        "3 of 4 pods running; rank 1: Unschedulable",
    ),
    "one that starts again as a whole does not": (
        lacking(half().placed(2, 3).running().fails(0).ready_again().settled().placed(1), 0, 2, 3).behind().after(15),
        "-2.0/5 -2.1/5 -2.2/5 -2.3/5",
        "Pending",
        GIVES_WAY.replace("2 of", "1 of"),
    ),
    # when it tries again
    "a gang that gave way stays away": (away.after(14), "", "Pending", GIVES_WAY),
    "until it comes first itself": (away.first(), "+2.0 +2.1 +2.2 +2.3", "Pending", "Creating 4 of 4 pods"),
    "once it has begun to come back it goes on with that": (
        away.first().decided().vanishes(1).behind(),
        "+2.1",
        "Pending",
        "Creating 1 of 4 pods",
    ),
    "but not before all is given back": (
        stuck.after(15).decided().first(),
        "",
        "Pending",
        "Waiting for 4 pods of the previous attempt to stop",
    ),
    "or for as long as it said: the first one may not be helped by that": (
        away.after(15),
        "+2.0 +2.1 +2.2 +2.3",
        "Pending",
        "Creating 4 of 4 pods",
    ),
    "while the line moves it stays away": (away.after(10).behind().after(14), "", "Pending", GIVES_WAY),
    "until that has not moved for a while": (
        away.after(10).behind().after(15),
        "+2.0 +2.1 +2.2 +2.3",
        "Pending",
        "Creating 4 of 4 pods",
    ),
    "and those ahead of it had their turn": (away.after(10).behind(3).after(44), "", "Pending", GIVES_WAY),
    "which takes no longer than it may hold nodes either": (
        away.after(10).behind(1000).after(600),
        "+2.0 +2.1 +2.2 +2.3",
        "Pending",
        "Creating 4 of 4 pods",
    ),
    "one that gave back for another reason waits as long as it said": (
        half(scheduleTimeoutSeconds=10, restart={"backoffSeconds": 100}).after(12).decided().gone().after(50),
        "",
        "Pending",
        f"2 of 4 pods could be scheduled within 10 s (scheduleTimeoutSeconds): {GIVING_BACK} in 94.2 s",
    ),
    "one that is resized meanwhile starts at once": (
        away.asks(nodes=2).decided(),
        "+3.0 +3.1",
        "Restarting",
        "Creating 2 of 2 pods",
    ),
}


@rows(TABLE)
def test_who_gives_way_and_when(moment: Moment, expected: tuple[str, str, str]) -> None:
    assert verdict(moment) == expected


def test_it_costs_no_restart_and_is_no_incident() -> None:
    status = away.status
    assert (status.restarts, status.disruptions, status.bookkeeping.budget, status.incidents) == (
        0,
        0,
        half().status.bookkeeping.budget,
        (),
    )


def test_it_is_told_in_an_event() -> None:
    (event,) = stuck.after(15).decision.events
    assert (event.reason, event.message) == ("GaveWay", GIVES_WAY)


def test_an_autoscaler_is_asked_about_only_by_a_gang_that_is_about_to_give_way() -> None:
    assert not decide(stuck.after(14).snapshot).needs
    pod = next(pod for pod in stuck.pods if pod.node == 2)
    assert decide(stuck.after(15).snapshot).needs == Needs(scale_up=pod.uid)


IN_LINE: dict[str, tuple[Moment, tuple[int, bool] | None]] = {
    "a job whose pods do not exist yet": (a_job(nodes=2), None),
    "one whose pods lack nodes": (half(), (2, False)),
    "also before the scheduler has said so": (a_job(nodes=2).created(), (0, False)),
    "one whose pods are held back by gates": (a_job(nodes=1).created().waits(0, "SchedulingGated"), None),
    "one of whose pods some are": (a_job(nodes=2).created().waits(0, "SchedulingGated"), (0, False)),
    "one whose pods all have nodes": (a_job(nodes=2).created().placed(0, 1), None),
    "one that runs": (a_job(nodes=2).running(), None),
    "one that runs again as soon as one pod has a node": (
        in_place.node_dies(1).settled().gone().settled(),
        (3, False),
    ),
    "one that runs with fewer than it may does well without": (
        half(elastic={"minNodes": 2}).after(120).ready_again().settled().runs(0, 1).settled(),
        None,
    ),
    "one that gives way": (stuck.after(15), (0, True)),
    "and stays away": (away, (0, True)),
    "and comes back": (away.first().settled(), (0, False)),
    "one that is about to come back": (away.first().decided().placed(0, 1, 2, 3), None),
    "one that gave back what it had held for too long, so that others may try": (half().after(720), None),
    "one that is being suspended": (half().asks(suspend=True), None),
    "one that is suspended while it stays away": (away.asks(suspend=True), None),
    "one that a quota keeps from running": (
        a_job(nodes=2).decided().vanishes(1).refused("QuotaExceeded", "no"),
        None,
    ),
    "one that has failed": (half(activeDeadlineSeconds=60).after(60), None),
}


@pytest.mark.parametrize(("moment", "expected"), IN_LINE.values(), ids=IN_LINE)
def test_who_stands_in_line_for_nodes(moment: Moment, expected: tuple[int, bool] | None) -> None:
    line = moment.decision.in_line
    assert (line and (line.found, line.away)) == expected


def trainer(**resources: Any) -> dict[str, Any]:
    return with_template(containers=[{"name": "trainer", "image": "trainer:1", "resources": resources}])


GPU, LARGE = {"nvidia.com/gpu": 1}, {"nvidia.com/gpu": 8, "cpu": "64", "memory": "1Ti"}
TERM = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
SAME_NODES: dict[str, tuple[dict[str, Any], dict[str, Any], bool]] = {
    "both say nothing": ({}, {}, True),
    "one wants much and the other little": (trainer(limits=GPU), trainer(requests=LARGE), True),
    "only one wants GPUs": (trainer(limits=GPU), trainer(requests={"cpu": 1}), False),
    "they choose different nodes": (
        with_template(nodeSelector={"gpu": "h100"}),
        with_template(nodeSelector={"gpu": "a100"}),
        False,
    ),
    "only one has to be somewhere": (
        with_template(
            affinity={
                "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [TERM]}}
            }
        ),
        {},
        False,
    ),
    "one would like to be somewhere": (
        with_template(
            affinity={"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1}]}}
        ),
        {},
        True,
    ),
    "one may go where the other may not": (with_template(tolerations=[{"operator": "Exists"}]), {}, True),
}


@pytest.mark.parametrize(("one", "other", "same"), SAME_NODES.values(), ids=SAME_NODES)
def test_which_jobs_stand_in_the_same_line(one: dict[str, Any], other: dict[str, Any], same: bool) -> None:  # noqa: FBT001  A table.
    asked = [kind_of_kubernetes_nodes(a_job(**spec).snapshot.job) for spec in (one, other)]
    assert (asked[0] == asked[1]) == same
