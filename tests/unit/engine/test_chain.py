"""Why the policies stand in this order: of each two neighbours a moment on which both have something to say."""

from datetime import timedelta
from itertools import pairwise

import pytest
from ddpjob_operator.engine.decide import decide
from ddpjob_operator.engine.policies import CHAIN, Policy

from .builders import START, Moment, a_job

two = a_job(nodes=2).running()
timed = a_job(nodes=2, activeDeadlineSeconds=60)
gang = a_job(nodes=2, restart={"mode": "InPlace"}).running().hears().settled()
IN_PLACE = {"attempt": 1, "time": (START + timedelta(seconds=5)).isoformat(), "node": 1, "cause": "Application"}
FAR = {"attempt": 1, "firstStep": 1, "step": 5000}
AT_THE_BEGINNING = {"attempt": 2, "firstStep": 1, "step": 3}
never_over = {"mode": "InPlace", "rules": [{"causes": ["StartedOver"], "action": "Fail"}]}
far = a_job(nodes=2, restart=never_over).running().hears(progress=FAR).settled()
again = far.hears(attempt=2, incidents=[IN_PLACE], progress=FAR).settled()
lost = two.reports(0, code=204, cause="PeerLost", message="lost").after(11).decided().overdue(1)
half = a_job(nodes=2, scheduleTimeoutSeconds=60).decided().placed(0)
broken = a_job(nodes=2, scheduleTimeoutSeconds=60).running().placed(0, 1).reports(1, cause="DeviceFailed").decided()
avoiding = broken.ready_again().decided().placed(0).waits(1, "Unschedulable")

BOTH_SPEAK: dict[str, tuple[str, str, Moment]] = {
    "a job that has ended and expired is deleted, not ended once more": (
        *("finished", "ending"),
        a_job(nodes=2, ttlSecondsAfterFinished=60).running().succeeds(0, 1).settled().after(60),
    ),
    "a job that fails by its deadline does so, though all ranks save and exit with 0 then": (
        *("ending", "succeeded"),
        timed.running().after(60).decided().succeeds(0, 1),
    ),
    "what was done when it was cancelled has succeeded": (
        *("succeeded", "cancelled"),
        two.succeeds(0, 1).asks(cancel=True),
    ),
    "a suspended job that is cancelled has ended": (
        *("cancelled", "suspended"),
        two.suspended().asks(cancel=True),
    ),
    "a job that is suspended as its deadline passes saves": (
        *("suspended", "past_deadlines"),
        timed.running().asks(suspend=True).after(60),
    ),
    "a job that is put into a queue as its deadline passes fails by it": (
        *("past_deadlines", "queued"),
        timed.nameless().decided().queues().after(60),
    ),
    "while nobody names an image, a job waits in its queue all the same": (
        *("queued", "obstructed"),
        a_job(nodes=2).nameless().queues(),
    ),
    "while nobody names an image, a job does not start": (
        *("obstructed", "started"),
        a_job(nodes=2).nameless(),
    ),
    "resumed half-way, it waits for its pods to end, wherever they began": (
        *("started", "overwriting"),
        again.asks(suspend=True).decided().asks(suspend=False).hears(attempt=2, progress=AT_THE_BEGINNING),
    ),
    "what a rule forbids ends the job, though the next attempt is about to begin": (
        *("overwriting", "restarted_in_place"),
        again.hears("Gathering", attempt=2, incidents=[IN_PLACE | {"attempt": 2}], progress=AT_THE_BEGINNING),
    ),
    "what supervisors answered before a pod was lost is charged before it": (
        *("restarted_in_place", "incident"),
        gang.after(6).hears(attempt=2, incidents=[IN_PLACE]).deleted_by_hand(1),
    ),
    "a failure of now is answered before more is said of the incident before": (
        *("incident", "corrected"),
        gang.deleted_by_hand(1).decided().overdue(1).fails(0),
    ),
    "what is known by now of an incident is said before the size changes, and nothing is learned any more": (
        *("corrected", "resized"),
        lost.asks(nodes=3),
    ),
    "while pods still end, the size changes": (
        *("resized", "between_attempts"),
        two.fails(1).decided().asks(nodes=3),
    ),
    "as long as a pod of the last attempt runs, the next one has not been given its time": (
        *("between_attempts", "lifted"),
        avoiding.after(200).comes_late(0, incarnation=1),
    ),
    "a gang that may have held nodes for too long only because it avoids others gives that up": (
        *("lifted", "given_back"),
        avoiding.after(200),
    ),
    "a gang that has held nodes for too long says so, also if another one waits for them": (
        *("given_back", "yields_to_gang_ahead"),
        half.waits(1, "Unschedulable").behind().after(200),
    ),
    "a gang that gives way creates no more pods": (
        *("yields_to_gang_ahead", "children"),
        a_job(nodes=3).decided().placed(0).waits(1, "Unschedulable").vanishes(2).behind().after(15),
    ),
    "a gang of which a pod is missing is not under way": (
        *("children", "under_way"),
        a_job(nodes=2).decided().vanishes(1),
    ),
}


def swapped(first: str) -> tuple[Policy, ...]:
    """The chain with this policy after the next one."""
    place = [policy.name for policy in CHAIN].index(first)
    return (*CHAIN[:place], CHAIN[place + 1], CHAIN[place], *CHAIN[place + 2 :])


@pytest.mark.parametrize(("first", "then", "moment"), BOTH_SPEAK.values(), ids=BOTH_SPEAK)
def test_it_would_be_answered_otherwise_by_the_next_one(first: str, then: str, moment: Moment) -> None:
    other = decide(moment.asked, swapped(first))
    assert (other.status, other.actions) != (moment.decision.status, moment.decision.actions), f"{then} says the same"


def test_the_order_of_all_neighbours_matters() -> None:
    neighbours = [(first.name, then.name) for first, then in pairwise(CHAIN)]
    assert [(first, then) for first, then, _ in BOTH_SPEAK.values()] == neighbours


def test_each_policy_says_why_it_stands_where_it_stands() -> None:
    assert all(policy.here.endswith(".") for policy in CHAIN)
