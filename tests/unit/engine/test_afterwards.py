"""Why the steps after the chain stand in this order: of each two neighbours a moment on which both do something."""

from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest
from ddpjob_operator.engine import Holder
from ddpjob_operator.engine.afterwards import AFTERWARDS, Step
from ddpjob_operator.engine.decide import decide

from .builders import START, Moment, a_job, defaults

SECOND = timedelta(seconds=1)

queued = a_job(nodes=2).queues().decided().admitted().running().settled()
gang = a_job(nodes=2).running().hears().settled()
once = a_job(nodes=2, restart={"maxRestarts": 0}).allows(force_delete_lost_pods=True)
lost = once.running().node_dies(1).decided().after(60)
queued_over = once.marked("").queues().decided().admitted().running().fails(0).decided().overdue(1)
over = once.marked("").running().fails(0).decided().overdue(1)
careful = a_job(nodes=2, disruption="AfterCheckpoint").guarded()
comes_up = careful.queues().decided().admitted().created().runs(0, 1)

SUPERVISED: dict[str, Any] = {
    "template": {"spec": {"containers": [{"name": "trainer", "image": "trainer:1", "command": ["ddpjob-train"]}]}},
}
CLOSE: dict[str, Any] = {"scheduling": {"topology": {"preferred": "example.com/rack"}}, **SUPERVISED}
requested = a_job(nodes=2, **SUPERVISED).running().requests("a").settled()
careful_and_close = a_job(nodes=2, disruption="AfterCheckpoint", **CLOSE).guarded().created()
close_and_lost = a_job(nodes=2, **CLOSE).running().node_dies(1).decided().overdue(1).after(60).settled()

BOTH_ACT: dict[str, tuple[str, str, Moment]] = {
    "a request that outlives its gang is answered by the last checkpoint that is reported": (
        *("reported", "requested"),
        requested.after(5).hears(checkpoint={"step": 1, "time": (START + SECOND).isoformat()}).succeeds(0, 1),
    ),
    "a request for a checkpoint changes no defaults": (
        *("requested", "defaulted"),
        a_job(cancel=True, **SUPERVISED).under(defaults(image="a")).requests("a"),
    ),
    "nothing is derived from the defaults of a job that begins": (
        *("defaulted", "derived"),
        a_job().under(defaults(image="a")),
    ),
    "the queue is told of the end that was decided on": (
        *("derived", "queue_told"),
        queued.succeeds(0, 1),
    ),
    "a queue is told that all run before they are protected": (
        *("queue_told", "protected"),
        comes_up,
    ),
    "pods are protected before they are told where they are": (
        *("protected", "located"),
        careful_and_close.runs(0, 1).nodes_are_in(rank0="a"),
    ),
    "a pod is told where it is before one that was lost is removed": (
        *("located", "without_lost_pods"),
        close_and_lost.allows(force_delete_lost_pods=True).placed(0, 1).nodes_are_in(rank0="a"),
    ),
    "a job that ends without a pod that was lost is marked last": (
        *("without_lost_pods", "marked"),
        over,
    ),
    "a job of another operator is signed before it is marked": (
        *("marked", "signed"),
        over.decided().held_by("team/other").marked("").allows(holder=Holder("team/own")),
    ),
}
INDIFFERENT = {("requested", "defaulted"), ("defaulted", "derived")}
"""Neighbours that could stand the other way round."""


def swapped(first: str) -> tuple[Step, ...]:
    """The steps with this one after the next."""
    place = [step.name for step in AFTERWARDS].index(first)
    return (*AFTERWARDS[:place], AFTERWARDS[place + 1], AFTERWARDS[place], *AFTERWARDS[place + 2 :])


def without(name: str) -> tuple[Step, ...]:
    """The steps but this one."""
    return tuple(step for step in AFTERWARDS if step.name != name)


@pytest.mark.parametrize(("first", "then", "moment"), BOTH_ACT.values(), ids=BOTH_ACT)
def test_the_order_matters_unless_the_two_are_listed_as_indifferent(first: str, then: str, moment: Moment) -> None:
    for one in (first, then):
        assert decide(moment.asked, afterwards=without(one)) != moment.decision, f"{one} does nothing"
    same = decide(moment.asked, afterwards=swapped(first)) == moment.decision
    assert same == ((first, then) in INDIFFERENT)


def test_of_all_neighbours_it_is_known_whether_their_order_matters() -> None:
    neighbours = [(first.name, then.name) for first, then in pairwise(AFTERWARDS)]
    assert [(first, then) for first, then, _ in BOTH_ACT.values()] == neighbours


def test_each_step_says_why_it_stands_where_it_stands() -> None:
    assert all(step.here.endswith(".") for step in AFTERWARDS)
