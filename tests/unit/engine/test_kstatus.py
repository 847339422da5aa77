"""What Flux, and Helm with `--wait`, think of a job in each state of its life: the rules are kstatus'."""

from typing import Any

import pytest
from ddpjob_operator.api import Condition, ConditionType, DDPJobStatus, State
from ddpjob_operator.api.reasons import PASSES
from ddpjob_operator.api.status import UNSEEN
from ddpjob_operator.engine.kstatus import CONDITION_OF, kstatus
from ddpjob_operator.engine.policies.queue import BLOCKING

from .argo_cd import health
from .builders import START, Moment, a_job, plan

WAIT, GIVE_UP, GO_ON = "InProgress", "Failed", "Current"
UNREAD = "The operator has not looked at the job yet"


def verdict(status: dict[str, Any], generation: int) -> str:
    """As pkg/kstatus/status/generic.go and status.go of cli-utils have it, for a type that they do not know."""
    if status.get("observedGeneration", generation) != generation:
        return WAIT
    for condition in status.get("conditions", ()):
        if (condition["type"], condition["status"]) == ("Reconciling", "True"):
            return WAIT
        if (condition["type"], condition["status"]) == ("Stalled", "True"):
            return GIVE_UP
    ready = [condition["status"] for condition in status.get("conditions", ()) if condition["type"] == "Ready"]
    return GO_ON if ready in ([], ["True"]) else WAIT


two = a_job(nodes=2)
running = two.running()
hopeless = a_job(nodes=2, restart={"maxRestarts": 0}).running().fails(0).decided()
STALL = {"since": "2026-01-01T12:00:00.000Z", "node": 1, "rank": 1, "message": "rank 1 is stopped (state T)"}
smaller = (
    a_job(nodes=2, elastic={}).created().placed(0).after(120).decided().ready_again().settled().runs(0).settled()
)
queued = two.queues().decided()

LIFE: dict[str, tuple[Moment, str]] = {
    "its pods are made": (two.said(), WAIT),
    "its pods start": (two.created().runs(0).decided(), WAIT),
    "it runs": (running, GO_ON),
    "some ranks are done": (running.succeeds(0).decided(), GO_ON),
    "no step finishes any more": (running.hears().settled().hears("Stalled", stall=STALL).decided(), GO_ON),
    "nothing is heard of its steps": (running.hears().settled().hears_nothing("no").after(60).decided(), GO_ON),
    "it restarts": (running.fails(1).decided(), WAIT),
    "it has restarted": (running.fails(1).decided().restarted(), GO_ON),
    "its spec has changed since": (running.asks(nodes=3), WAIT),
    "it takes its new size": (running.asks(nodes=3).decided(), WAIT),
    "it is told to save and stop": (running.asks(suspend=True).decided(), WAIT),
    "it is suspended": (running.suspended(), GO_ON),
    "it was suspended from the start": (a_job(suspend=True).decided(), GO_ON),
    "it is resumed": (running.suspended().asks(suspend=False).decided().created().runs(0, 1).decided(), GO_ON),
    "it waits in its queue": (queued.waits_in_queue("WaitingForQuota", "full").decided(), WAIT),
    "it fits in no queue": (queued.waits_in_queue("ExceedsMaxQuota", "too much").decided(), GIVE_UP),
    "a quota is in its way": (two.decided().vanishes(1).refused("QuotaExceeded", "no").decided(), WAIT),
    "a policy is in its way": (two.decided().vanishes(1).refused("Forbidden", "no").decided(), GIVE_UP),
    "a policy was": (two.decided().vanishes(1).refused("Forbidden", "no").decided().accepted().settled(), WAIT),
    "a policy keeps it from growing": (smaller.vanishes(1).refused("Forbidden", "no").decided(), GO_ON),
    "nobody names an image": (two.nameless().decided(), GIVE_UP),
    "enough ranks have succeeded, and others are stopped": (
        a_job(nodes=2, successPolicy="RankZero").running().succeeds(0).decided(),
        WAIT,
    ),
    "it is complete": (running.succeeds(0, 1).settled(), GO_ON),
    "it will fail, and pods are stopped": (hopeless, WAIT),
    "it has failed": (hopeless.gone().decided(), GIVE_UP),
}


@pytest.mark.parametrize(("moment", "expected"), LIFE.values(), ids=LIFE)
def test_what_kstatus_makes_of_a_job(moment: Moment, expected: str) -> None:
    assert verdict(moment.status.to_dict(), moment.snapshot.job.metadata.generation) == expected


def test_a_job_that_no_operator_has_looked_at_is_waited_for() -> None:
    assert verdict(UNSEEN, 1) == WAIT
    seen = two.but(job=two.snapshot.job.with_status(DDPJobStatus.model_validate(UNSEEN)))
    assert (plan(seen), seen.decision.status) == (plan(two), two.decision.status)


def test_each_state_has_its_row() -> None:
    assert CONDITION_OF.keys() == set(State) == {moment.status.state for moment, _ in LIFE.values()}


def blocked(reason: str) -> DDPJobStatus:
    said = Condition(
        type="Blocked", status="True", reason=reason, message="no", last_transition_time=START, observed_generation=1
    )
    return DDPJobStatus(conditions=(said,))


@pytest.mark.parametrize("reason", [*PASSES, *sorted(BLOCKING)])
def test_a_job_that_is_blocked_is_waited_for_exactly_while_that_may_pass(reason: str) -> None:
    passes = PASSES.get(reason, False)
    assert kstatus(blocked(reason)) is (ConditionType.RECONCILING if passes else ConditionType.STALLED)


def test_what_is_not_true_is_left_out_and_what_is_dates_from_when_it_became_so() -> None:
    kinds = [[one.type for one in moment.status.conditions] for moment in (running, hopeless.gone().decided())]
    assert [kind for kind in kinds[0] if kind in {"Reconciling", "Stalled"}] == []
    assert kinds[1][-1] == "Stalled"
    starting = two.created().after(5).runs(0).decided()
    assert starting.condition(ConditionType.RECONCILING).last_transition_time == START
    assert starting.condition(ConditionType.RECONCILING).message == starting.status.message


@pytest.mark.parametrize(("moment", "expected"), LIFE.values(), ids=LIFE)
def test_argo_cd_agrees_and_shows_the_message(moment: Moment, expected: str) -> None:
    suspended = moment.status.state is State.SUSPENDED
    words = {WAIT: "Progressing", GIVE_UP: "Degraded", GO_ON: "Suspended" if suspended else "Healthy"}
    job = moment.snapshot.job
    said = moment.status.message if job.metadata.generation == moment.status.observed_generation else UNREAD
    document = job.with_status(moment.status).to_document()
    assert health(document) == (words[expected], said)


@pytest.mark.parametrize("status", [{}, {"status": {}}, {"status": UNSEEN}])
def test_for_argo_cd_a_job_that_no_operator_has_looked_at_is_on_its_way(status: dict[str, Any]) -> None:
    document = two.snapshot.job.to_document()
    del document["status"]
    assert health({**document, **status}) == ("Progressing", UNREAD)


def test_how_a_job_has_failed_does_not_change_with_what_is_asked_for_since() -> None:
    moment = a_job(nodes=1, restart={"maxRestarts": 0}).running().fails(0).settled()
    assert moment.status.finished
    then = moment.asks(suspend=True).settled()
    assert then.status.observed_generation > moment.status.observed_generation
    assert then.status.conditions == moment.status.conditions
