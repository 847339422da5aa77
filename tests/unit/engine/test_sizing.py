"""How many nodes a gang has: as many as asked for, as many as there are, and none that it only holds."""

from datetime import timedelta

import pytest

from .builders import Moment, a_job
from .tables import Table, rows, verdict

two = a_job(nodes=2)
broken = two.running().fails(1, message="ValueError: no").decided()

three = a_job(nodes=3, elastic={"minNodes": 2, "shrinkAfterSeconds": 60}, restart={"backoffSeconds": 0})
small = three.created().placed(0, 2).after(60).ready_again().settled().runs(0, 1).settled()
"""Two of the three run, and a third pod looks out for a place."""
one = a_job(nodes=3, elastic={"shrinkAfterSeconds": 60}, restart={"backoffSeconds": 0})
tiny = one.created().placed(0).after(60).ready_again().settled().runs(0).settled()
"""One of the three runs."""
four = a_job(nodes=4, elastic={"shrinkAfterSeconds": 60}, restart={"backoffSeconds": 0})
tinier = four.created().placed(0).after(60).ready_again().settled().runs(0).settled()
"""One of four runs."""

STALL = {"since": "2026-01-01T12:00:00.000Z", "node": 1, "rank": 1, "message": "rank 1 is stopped"}
still = small.vanishes(2).refused("QuotaExceeded", "exceeded quota").hears("Stalled", stall=STALL)

gang = a_job(nodes=2, scheduleTimeoutSeconds=100)
given_back = gang.created().placed(1).after(120).decided()

STUCK = (
    "1 of 2 pods running; rank 1: waiting for its volumes and network; not all pods were running within 300 s (3 "
    "times scheduleTimeoutSeconds): stopping all pods, and trying again in 0.9 s"
)
SHORT = "1 of 2 pods could be scheduled within 100 s (scheduleTimeoutSeconds)"
GIVEN_BACK = f"{SHORT}: stopping all pods, and trying again in 0.9 s"

REFUSED = "pods is forbidden: minimum cpu usage per Container is 2, but request is 1 (container trainer)"
AND_GIVES_BACK = "; the gang gives up its pods, and tries again at growing intervals"
half = gang.decided().vanishes(1).placed(0)
unfit = half.refused("LimitRangeViolation", REFUSED, fits=0)
elastic = three.decided().vanishes(2).placed(0, 1)

TABLE: Table = {
    # another size
    "another number of nodes ends the gang with the time to save": (
        two.running().asks(nodes=3),
        "-1.0/full -1.1/full",
        "Restarting",
        "Resizing from 2 to 3 nodes",
    ),
    "and starts it again with the new size": (
        two.running().asks(nodes=3).decided().gone(),
        "+2.0 +2.1 +2.2",
        "Restarting",
        "Creating 3 of 3 pods",
    ),
    "a job may shrink to one node": (
        two.running().asks(nodes=1).decided().gone(),
        "+2.0",
        "Restarting",
        "Creating 1 of 1 pod",
    ),
    "a resize does not wait for a backoff": (
        broken.gone().asks(nodes=1).decided(),
        "+3.0",
        "Restarting",
        "Creating 1 of 1 pod",
    ),
    "a size that was wanted for a moment only is a restart all the same": (
        two.running().asks(nodes=3).decided().asks(nodes=2),
        "",
        "Restarting",
        "Resizing from 3 to 2 nodes",
    ),
    "a failure is told and counted before the size changes": (
        two.running().fails(1, message="ValueError: no").asks(nodes=3),
        "-1.0/5",
        "Restarting",
        "Rank 1 failed: Application: ValueError: no; restart 1 of 6 in 0.9 s",
    ),
    "and leaves its log": (
        two.running().fails(1, message="ValueError: no").asks(nodes=3).decided(),
        "",
        "Restarting",
        "Resizing from 2 to 3 nodes",
    ),
    "a gang that waits for its nodes is resized at once": (
        a_job(nodes=3).created().placed(0, 1).asks(nodes=2),
        "-1.0/full -1.1/full -1.2/full",
        "Restarting",
        "Resizing from 3 to 2 nodes",
    ),
    # an elastic gang, smaller
    "an elastic gang waits for its places": (
        three.created().placed(0, 2).after(59),
        "",
        "Starting",
        "0 of 3 pods running; rank 0 and 1 more: starting on Kubernetes node node-0",
    ),
    "and goes on with what it has when they do not come": (
        three.created().placed(0, 2).after(60),
        "-1.0/5 -1.1/5 -1.2/5",
        "Restarting",
        "2 of 3 pods could be scheduled within 60 s: continuing with these",
    ),
    "in ranks without a gap": (
        three.created().placed(0, 2).after(60).ready_again(),
        "+2.0 +2.1",
        "Restarting",
        "Creating 2 of 2 pods",
    ),
    "an elastic gang that runs does not wait for a rank that has finished and whose pod has gone": (
        three.running().succeeds(2).settled().vanishes(2).after(100),
        "",
        "Running",
        "1 of 3 nodes finished: rank 2",
    ),
    "an elastic gang that held nothing for long waits for all of its places too": (
        three.created().after(1000).placed(0, 2).after(59),
        "",
        "Starting",
        "0 of 3 pods running; rank 0 and 1 more: starting on Kubernetes node node-0",
    ),
    "but not with fewer than it may": (
        three.created().placed(1).after(300),
        "",
        "Starting",
        "0 of 3 pods running; rank 0 and 1 more: waiting to be scheduled",
    ),
    "nor where all have a place and only take their time": (
        three.created().placed(0, 1, 2).after(300),
        "",
        "Starting",
        "0 of 3 pods running; rank 0 and 2 more: starting on Kubernetes node node-0",
    ),
    "a gang that is not elastic never goes on with fewer": (
        a_job(nodes=3).created().placed(0, 1).after(300),
        "",
        "Starting",
        "0 of 3 pods running; rank 0 and 1 more: starting on Kubernetes node node-0",
    ),
    "it shrinks also when it starts again after a lost node": (
        three.running().node_dies(1).settled().gone_but(1).after(41).settled().placed(0, 2).after(60),
        "-2.0/5 -2.1/5 -2.2/5",
        "Restarting",
        "2 of 3 pods could be scheduled within 60 s: continuing with these",
    ),
    "and twice where it has to": (
        one.created().placed(0, 1).after(60).ready_again().settled().placed(1).after(60),
        "-2.0/5 -2.1/5",
        "Restarting",
        "1 of 2 pods could be scheduled within 60 s: continuing with these",
    ),
    # and larger again
    "a gang that runs with fewer looks out for what it lacks": (
        three.created().placed(0, 2).after(60).ready_again().settled().runs(0, 1),
        "+2.2?",
        "Running",
        "2 nodes running",
    ),
    "it does once only": (
        small,
        "",
        "Running",
        "2 nodes running",
    ),
    "a place that was found only now may be one that a rank has finished and left, and nobody has heard of it": (
        small.placed(2).after(4),
        "",
        "Running",
        "2 nodes running",
    ),
    "so it is": (
        small.placed(2).after(4).succeeds(0).after(1),
        "-2.2/0",
        "Running",
        "1 of 2 nodes finished: rank 0",
    ),
    "a place is found: it saves and starts again with it": (
        small.placed(2).after(5),
        "-2.0/full -2.1/full -2.2/full",
        "Restarting",
        "Resizing from 2 to 3 nodes",
    ),
    "an operator that died before it deleted the smaller one leaves it the time to save as well": (
        small.placed(2).after(5).said(),
        "-2.0/full -2.1/full -2.2/full",
        "Restarting",
        "Waiting for 3 pods of the previous attempt to stop",
    ),
    "with all of them": (
        small.placed(2).after(5).ready_again(),
        "+3.0 +3.1 +3.2",
        "Restarting",
        "Creating 3 of 3 pods",
    ),
    "where two are missing and one is found it waits a while for the other": (
        tiny.placed(2).after(59),
        "",
        "Running",
        "1 node running",
    ),
    "and then grows by one": (
        tiny.placed(2).after(60),
        "-2.0/full -2.1/full -2.2/full",
        "Restarting",
        "Resizing from 1 to 2 nodes",
    ),
    "a place that was found long ago says nothing about the one that was found last": (
        tiny.placed(2).after(30).placed(1).after(4),
        "",
        "Running",
        "1 node running",
    ),
    "or by both at once": (
        tiny.placed(2).after(30).placed(1).after(5),
        "-2.0/full -2.1/full -2.2/full",
        "Restarting",
        "Resizing from 1 to 3 nodes",
    ),
    "it waits no longer since another has been found meanwhile": (
        tinier.placed(2).after(30).placed(1).after(29),
        "",
        "Running",
        "1 node running",
    ),
    "but grows by both": (
        tinier.placed(2).after(30).placed(1).after(30),
        "-2.0/full -2.1/full -2.2/full -2.3/full",
        "Restarting",
        "Resizing from 1 to 3 nodes",
    ),
    "a place that goes before the gang has grown is none": (
        tiny.placed(2).node_dies(2).after(60),
        "",
        "Running",
        "1 node running",
    ),
    "also not the last one that was lacking": (
        small.deleted_by_hand(2).placed(2).after(5),
        "",
        "Running",
        "2 nodes running",
    ),
    "one that looks out and fails is not recreated in this attempt": (
        small.placed(2).fails(2, code=137).after(5),
        "",
        "Running",
        "2 nodes running",
    ),
    "nor is its failure the gang's": (
        small.placed(2).fails(2, code=1, message="no").after(600),
        "",
        "Running",
        "2 nodes running",
    ),
    "one that somebody deletes is recreated": (
        small.deleted_by_hand(2).gone(),
        "+2.2?",
        "Running",
        "2 nodes running",
    ),
    "a gang that has not come up does not look out": (
        three.created().placed(0, 2).after(60).ready_again().settled().runs(0),
        "",
        "Restarting",
        "1 of 2 pods running; rank 1: waiting to be scheduled",
    ),
    "nor does one of which a rank has finished": (
        three.created().placed(0, 2).after(60).ready_again().settled().runs(1).succeeds(0),
        "",
        "Running",
        "1 of 2 nodes finished: rank 0",
    ),
    "and a place that is found then comes too late": (
        small.succeeds(0).placed(2).after(5),
        "-2.2/0",
        "Running",
        "1 of 2 nodes finished: rank 0",
    ),
    "what is refused to one that looks out keeps nobody from running": (
        small.vanishes(2).refused("QuotaExceeded", "exceeded quota"),
        "",
        "Running",
        "2 nodes running; the gang cannot grow: exceeded quota",
    ),
    "nor does it hide that the gang stands still": (
        still,
        "",
        "Stalled",
        "Training has stalled: rank 1 is stopped (Kubernetes node node-1); the gang cannot grow: exceeded quota",
    ),
    "also while another operator has not heard yet whether it still does": (
        still.settled().awaits_report().decided().settled(),
        "",
        "Stalled",
        "Training has stalled: rank 1 is stopped (Kubernetes node node-1); the gang cannot grow: exceeded quota",
    ),
    "and is tried again when it is time": (
        small.vanishes(2).refused("QuotaExceeded", "exceeded quota").after(5),
        "+2.2?",
        "Running",
        "2 nodes running; the gang cannot grow: exceeded quota",
    ),
    "also by another operator, which does not know yet what is in the way": (
        small.vanishes(2).refused("QuotaExceeded", "exceeded quota").settled().accepted(),
        "+2.2?",
        "Running",
        "2 nodes running; the gang cannot grow: exceeded quota",
    ),
    "and nothing is in the way any more once it is there": (
        small.vanishes(2).refused("QuotaExceeded", "exceeded quota").settled().accepted().settled(),
        "",
        "Running",
        "2 nodes running",
    ),
    "or once it is not wanted": (
        small.vanishes(2).refused("QuotaExceeded", "exceeded quota").settled().succeeds(0),
        "",
        "Running",
        "1 of 2 nodes finished: rank 0",
    ),
    "an incident ends those that look out as well": (
        small.fails(0, message="no"),
        "-2.1/5 -2.2/5",
        "Restarting",
        "Rank 0 failed: Application: no; restart 1 of 6 in 0.0 s",
    ),
    "and keeps the size": (
        small.fails(0, message="no").ready_again(),
        "+3.0 +3.1",
        "Restarting",
        "Creating 2 of 2 pods",
    ),
    # and another size
    "a larger size is a place more to look out for, not a restart": (
        three.running().asks(nodes=4),
        "+1.3?",
        "Running",
        "3 nodes running",
    ),
    "a smaller one that is more than there are is none either": (
        tiny.asks(nodes=2),
        "-2.2/0",
        "Running",
        "1 node running",
    ),
    "one that is as many as there are ends the looking out": (
        small.asks(nodes=2),
        "-2.2/0",
        "Running",
        "2 nodes running",
    ),
    "also where one of those has a place already": (
        tiny.placed(2).asks(nodes=1),
        "-2.1/0 -2.2/0",
        "Running",
        "1 node running",
    ),
    "one that is less is a resize": (
        three.running().asks(nodes=2),
        "-1.0/full -1.1/full -1.2/full",
        "Restarting",
        "Resizing from 3 to 2 nodes",
    ),
    "so is a gang that may not be as small any more": (
        tiny.asks(elastic={"minNodes": 2}),
        "-2.0/full -2.1/full -2.2/full",
        "Restarting",
        "Resizing from 1 to 3 nodes",
    ),
    "or not elastic any more": (
        small.asks(elastic=None),
        "-2.0/full -2.1/full -2.2/full",
        "Restarting",
        "Resizing from 2 to 3 nodes",
    ),
    "a resumed gang tries with all": (
        small.suspended().asks(suspend=False),
        "+3.0 +3.1 +3.2",
        "Pending",
        "Creating 3 pods",
    ),
    # a gang that holds nodes and lacks others
    "a gang of which some have nodes waits": (
        gang.created().placed(1).after(100),
        "",
        "Starting",
        "0 of 2 pods running; rank 0: waiting to be scheduled",
    ),
    "and gives them back: another may wait for them, and hold what it lacks": (
        gang.created().placed(1).after(120),
        "-1.0/5 -1.1/5",
        "Pending",
        GIVEN_BACK,
    ),
    "at once, also by an operator that died before it did": (
        gang.created().placed(1).after(120).said(),
        "-1.0/5 -1.1/5",
        "Pending",
        GIVEN_BACK,
    ),
    "at once, if no pod like the missing one is ever let in": (unfit, "-1.0/5", "Pending", REFUSED + AND_GIVES_BACK),
    "also if it is not scheduled yet": (
        gang.decided().vanishes(1).refused("LimitRangeViolation", REFUSED, fits=0),
        "-1.0/5",
        "Pending",
        REFUSED + AND_GIVES_BACK,
    ),
    "or if a quota lets in fewer than the gang needs, whoever else ends": (
        half.refused("QuotaExceeded", "limited: pods=1", fits=1),
        "-1.0/5",
        "Pending",
        "limited: pods=1" + AND_GIVES_BACK,
    ),
    "not if it lets in enough once others end": (
        half.refused("QuotaExceeded", "limited: pods=2", fits=2),
        "",
        "Pending",
        "limited: pods=2",
    ),
    "nor if an elastic gang can do with those": (
        elastic.refused("QuotaExceeded", "limited: pods=2", fits=2),
        "",
        "Pending",
        "limited: pods=2",
    ),
    "if not even an elastic gang can, at once": (
        elastic.refused("QuotaExceeded", "limited: pods=1", fits=1),
        "-1.0/5 -1.1/5",
        "Pending",
        "limited: pods=1" + AND_GIVES_BACK,
    ),
    "a gang that is let nowhere holds nothing to give back": (
        gang.decided().vanishes(0, 1).refused("LimitRangeViolation", REFUSED, fits=0),
        "",
        "Pending",
        REFUSED,
    ),
    "it waits for its pods to end": (
        unfit.decided().accepted().after(1),
        "",
        "Pending",
        "Waiting for 1 pod of the previous attempt to stop",
    ),
    "and tries again after a while, still refused for all it knows": (
        unfit.decided().accepted().ready_again(),
        "+2.0 +2.1",
        "Pending",
        REFUSED + AND_GIVES_BACK,
    ),
    "it tries again after a while": (
        given_back.gone(),
        "",
        "Pending",
        GIVEN_BACK,
    ),
    "whole": (
        given_back.ready_again(),
        "+2.0 +2.1",
        "Pending",
        "Creating 2 of 2 pods",
    ),
    "but not before all is given back": (
        given_back.after(9),
        "",
        "Pending",
        "Waiting for 2 pods of the previous attempt to stop",
    ),
    "one that holds nothing is in nobody's way": (
        gang.created().after(1e6),
        "",
        "Starting",
        "0 of 2 pods running; rank 0 and 1 more: waiting to be scheduled",
    ),
    "one that has all its nodes lacks none": (
        gang.created().placed(0, 1).after(300),
        "",
        "Starting",
        "0 of 2 pods running; rank 0 and 1 more: starting on Kubernetes node node-0",
    ),
    "but gives them back where its pods do not come to run there": (
        gang.created().placed(0, 1).runs(0).waits(1, "waiting for its volumes and network").decided().after(400),
        "-1.0/5 -1.1/5",
        "Pending",
        STUCK,
    ),
    "not while one of them fetches something": (
        gang.created().placed(0, 1).runs(0).waits(1, "init container fetch runs", busy=True).decided().after(1e6),
        "",
        "Starting",
        "1 of 2 pods running; rank 1: init container fetch runs",
    ),
    "a pod that could not be made lacks a node too": (
        gang.decided().vanishes(1).refused("QuotaExceeded", "exceeded quota", 9).placed(0).after(120),
        "-1.0/5",
        "Pending",
        GIVEN_BACK,
    ),
    "one that held nothing for long waits for the others once it holds something: they come one by one": (
        gang.created().after(1000).placed(1).after(100),
        "",
        "Starting",
        "0 of 2 pods running; rank 0: waiting to be scheduled",
    ),
    "it is so after an incident too": (
        gang.running().fails(0).ready_again().settled().placed(1).after(120),
        "-2.0/5 -2.1/5",
        "Pending",
        f"{SHORT}: stopping all pods, and trying again in 2.0 s",
    ),
    "an elastic gang goes on with what it has instead": (
        a_job(nodes=2, scheduleTimeoutSeconds=100, elastic={}).created().placed(1).after(120),
        "-1.0/5 -1.1/5",
        "Restarting",
        "1 of 2 pods could be scheduled within 120 s: continuing with these",
    ),
}


@rows(TABLE)
def test_sizes(moment: Moment, expected: tuple[str, str, str]) -> None:
    assert verdict(moment) == expected


FREE: dict[str, Moment] = {
    "a resize": two.running().asks(nodes=3).decided(),
    "shrinking": small,
    "growing": small.placed(2).after(5).decided(),
    "giving nodes back": given_back,
    "giving them back because the others are refused": unfit.decided(),
}


@pytest.mark.parametrize("moment", FREE.values(), ids=FREE)
def test_it_costs_no_restart_and_is_no_incident(moment: Moment) -> None:
    status = moment.status
    assert (status.restarts, status.disruptions, status.bookkeeping.budget.used, status.incidents) == (0, 0, 0, ())


def test_the_present_size_is_in_the_status_and_the_spec_is_left_alone() -> None:
    assert (small.status.nodes, small.snapshot.job.spec.nodes, small.status.display.ready) == (2, 3, "2/2")
    assert small.status.selector == "ddpjob.dev/job-uid=uid-1"


def test_each_time_that_nodes_are_given_back_the_wait_is_longer() -> None:
    again = given_back.ready_again().settled().placed(1).after(120).decided()
    first, second = (
        (moment.status.backoff_until or moment.snapshot.now) - moment.snapshot.now for moment in (given_back, again)
    )
    assert timedelta(seconds=1) >= first < second


def test_a_refused_gang_without_a_backoff_does_not_try_again_at_once_for_ever() -> None:
    moment, waits = a_job(nodes=2, restart={"backoffSeconds": 0}), list[float]()
    for _ in range(12):
        moment = moment.decided().vanishes(1).refused("LimitRangeViolation", REFUSED, fits=0).decided()
        until = moment.status.backoff_until
        assert until is not None
        waits.append((until - moment.snapshot.now).total_seconds())
        moment = moment.accepted().gone().ready_again()
    assert waits == [min(2**tries, 256) for tries in range(12)]


def test_two_jobs_that_hold_what_the_other_lacks_let_go_at_different_moments() -> None:
    moments = {gang.called(uid=f"uid-{n}").created().placed(1).decision.wake_at for n in range(20)}
    waits = sorted((moment - gang.snapshot.now).total_seconds() for moment in moments if moment is not None)
    assert len(waits) == 20
    assert waits[0] >= 100
    assert waits[-1] <= 120
    assert waits[-1] - waits[0] > 10


def test_giving_nodes_back_is_told_in_an_event() -> None:
    events = gang.created().placed(1).after(120).decision.events
    assert [(event.warning, event.reason, event.message) for event in events] == [
        (True, "GangIncomplete", GIVEN_BACK)
    ]
