"""Attempts that begin where the job began: which of them lose something, what is said of that, and who forbids it."""

import inspect
from datetime import timedelta
from typing import Any

import pytest
from ddpjob_operator.api import ConditionType
from ddpjob_operator.engine import starting_over
from ddpjob_operator.engine.starting_over import Former, Interval, steps_lost
from ddpjob_supervisor.page import starting_over as without_operator

from .builders import START, Moment, a_job, plan, told
from .tables import Table, rows, verdict

LONG = Former(earliest=1, furthest=12_400, step_seconds=0.5)
SAVED = Former(earliest=1, furthest=12_400, saved=12_000)
NO_INTERVAL = Interval()

# What is known of former attempts, the first step of this one, where its program says that it begins, how often it is
# asked to save -> the steps that are lost.
RULE: dict[str, tuple[Former, int, str | None, Interval, int]] = {
    "it begins at the beginning": (LONG, 1, None, NO_INTERVAL, 12_400),
    "it counts from 0": (Former(0, 12_400), 0, None, NO_INTERVAL, 12_400),
    "it tells each hundredth step": (Former(100, 12_400), 100, None, NO_INTERVAL, 12_301),
    "it begins before all others, which have gone on from what was there before the job": (
        *(Former(8_001, 12_400), 1, None, NO_INTERVAL),
        12_400,
    ),
    "it goes on a bit behind": (LONG, 12_001, None, NO_INTERVAL, 0),
    "it goes on far behind, from the best checkpoint, say": (LONG, 2_001, None, NO_INTERVAL, 0),
    "it goes on from step 1": (LONG, 2, None, NO_INTERVAL, 0),
    "it goes on after the last step": (LONG, 12_401, None, NO_INTERVAL, 0),
    "after the only step that there was": (Former(1, 1), 2, None, NO_INTERVAL, 0),
    # By its own account.
    "it has loaded what was there before the job": (Former(8_001, 12_400), 8_001, "FromCheckpoint", NO_INTERVAL, 0),
    "it was asked to start over": (SAVED, 1, "AsAsked", NO_INTERVAL, 0),
    "it has found nothing, and nothing was saved": (LONG, 1, "NothingSaved", NO_INTERVAL, 0),
    "it has found nothing, though there was something": (SAVED, 1, "NothingSaved", NO_INTERVAL, 12_400),
    # By checkpoints.
    "the last checkpoint is not loaded": (SAVED, 1, None, NO_INTERVAL, 12_400),
    "be it after few steps": (Former(1, 3, saved=2), 1, None, NO_INTERVAL, 3),
    "the last checkpoint is that of the beginning": (Former(1, 12_400, saved=0), 1, None, NO_INTERVAL, 0),
    # By what lies between two saves.
    "few steps": (Former(1, 99), 1, None, NO_INTERVAL, 0),
    "some steps": (Former(1, 100), 1, None, NO_INTERVAL, 100),
    "few long steps": (Former(1, 5, step_seconds=11.9), 1, None, NO_INTERVAL, 0),
    "some long steps": (Former(1, 5, step_seconds=12), 1, None, NO_INTERVAL, 5),
    "as many steps as between two saves": (Former(1, 1000, step_seconds=10), 1, None, Interval(steps=1000), 0),
    "more of them": (Former(1, 1001), 1, None, Interval(steps=1000), 1001),
    "as much time as between two saves": (Former(1, 600, step_seconds=1), 1, None, Interval(seconds=600), 0),
    "more of it": (Former(1, 601, step_seconds=1), 1, None, Interval(seconds=600), 601),
}


@pytest.mark.parametrize(("past", "first", "begins", "every", "lost"), RULE.values(), ids=RULE)
def test_how_many_steps_are_lost_by_starting_over(
    past: Former, first: int, begins: str | None, every: Interval, lost: int
) -> None:
    assert steps_lost(past, first, begins, every) == lost


def test_a_supervisor_without_an_operator_judges_by_the_same_rule() -> None:
    for name in ("Interval", "Former", "steps_lost"):
        ours, other = (inspect.getsource(getattr(module, name)) for module in (starting_over, without_operator))
        assert ours == other
    for name in ("FAR_STEPS", "FAR_SECONDS", "KNOWS_WHERE", "NOTHING_SAVED"):
        assert getattr(starting_over, name) == getattr(without_operator, name)


@told
def at(moment: Moment, attempt: int, first: int | None, step: int | None, /, **more: Any) -> Moment:
    """Its supervisor says of an attempt at which step it began and where it is."""
    progress = {"attempt": attempt, "firstStep": first, "step": step, **more}
    incidents = [killed(one) for one in range(moment.status.attempt, attempt)]
    return moment.hears(attempt=attempt, incidents=incidents, progress=progress)


def killed(attempt: int) -> dict[str, Any]:
    time = (START + timedelta(seconds=attempt)).isoformat()
    return {"attempt": attempt, "time": time, "node": 1, "cause": "Application", "signal": 9, "message": "killed"}


TIMES = {"since": (START - timedelta(minutes=100)).isoformat(), "lastStepTime": START.isoformat()}
FORBIDDEN = {"rules": [{"causes": ["StartedOver"], "action": "Fail"}]}


def trained(**spec: Any) -> Moment:
    """A job that has finished 12,400 steps."""
    return at(a_job(nodes=2, **spec).running().hears().settled(), 1, 1, 12_400, **TIMES).settled()


far = trained()
over = at(far, 2, 1, 3).decided()
saved = at(far, 1, 1, 12_400).hears(
    checkpoint={"step": 12_000}, progress={"attempt": 1, "firstStep": 1, "step": 12_400}
)
recreated = trained(restart={"mode": "Recreate"}).fails(1).restarted()
forbidden = trained(restart=FORBIDDEN)
kept = trained(restart=FORBIDDEN, cleanPodPolicy="None")
SAID = (
    "Attempt 2 started over: its first step is 1, although step 12400 had finished before. That loses 12400 steps "
    "(about 1h40m), and new checkpoints may overwrite older ones. Make the program load its last checkpoint when it "
    'starts, as the tutorial "Make your script resume" shows'
)
TABLE: Table = {
    "first the incident is charged": (
        at(far, 2, 1, 3),
        "",
        "Restarting",
        "Rank 1 failed: Application: killed; restart 1 of 6, in place",
    ),
    "then it is said that the new attempt started over": (
        over,
        "",
        "Running",
        "2 nodes running; training started over",
    ),
    "also where the pods are new": (
        at(recreated, 2, 1, 3),
        "",
        "Running",
        "2 nodes running; training started over",
    ),
    "and to an operator that was restarted meanwhile": (
        over.settled().awaits_report(),
        "",
        "Running",
        "2 nodes running; training started over",
    ),
    "as long as that attempt runs": (
        at(over.settled(), 2, 1, 20_000),
        "",
        "Running",
        "2 nodes running; training started over",
    ),
    "until another one goes on": (
        at(at(over.settled(), 2, 1, 50), 3, 51, 52).decided(),
        "",
        "Running",
        "2 nodes running",
    ),
    "one that goes on is as any other": (at(far, 2, 12_001, 12_003).decided(), "", "Running", "2 nodes running"),
    "so is one of a program that tells no steps": (
        far.hears(attempt=2, incidents=[killed(1)]).decided(),
        "",
        "Running",
        "2 nodes running",
    ),
    "or of which nobody knows where it began": (
        far.hears(attempt=2, incidents=[killed(1)], progress={"attempt": 2, "stepsSinceRestart": 12}).decided(),
        "",
        "Running",
        "2 nodes running",
    ),
    "or whose supervisor does not say": (
        far.hears(attempt=2, incidents=[killed(1)], progress={"step": 3}).decided(),
        "",
        "Running",
        "2 nodes running",
    ),
    "or that counts the steps of each epoch anew": (
        at(at(far, 1, 1, 20, recounts=True).settled(), 2, 1, 3).decided(),
        "",
        "Running",
        "2 nodes running",
    ),
    "be it two attempts before": (
        at(at(at(far, 1, 1, 20, recounts=True).settled(), 2, 1, 3).settled(), 3, 1, 3).decided(),
        "",
        "Running",
        "2 nodes running",
    ),
    "a job that was scaled goes on at other numbers": (
        at(far.asks(nodes=4).settled().gone().running(), 2, 3_101, 3_102),
        "",
        "Running",
        "4 nodes running",
    ),
    "a job that was deleted and made anew begins at the beginning": (
        at(a_job(nodes=2).called(uid="uid-2").running(), 1, 1, 3),
        "",
        "Running",
        "2 nodes running",
    ),
    # A rule forbids it.
    "where a rule forbids it the job fails, and its pods get no time to save": (
        at(forbidden, 2, 1, 3).decided(),
        "-1.0/1 -1.1/1",
        "Restarting",
        f"Stopping 2 pods: {SAID} (spec.restart.rules[0] says Fail)",
    ),
    "also pods that are to stay after the end": (
        at(kept, 2, 1, 3).decided(),
        "-1.0/1 -1.1/1",
        "Restarting",
        f"Stopping 2 pods: {SAID} (spec.restart.rules[0] says Fail)",
    ),
    "also if it has failed by then": (
        at(forbidden, 2, 1, 3).decided().fails(1),
        "-1.0/1",
        "Restarting",
        f"Stopping 1 pod: {SAID} (spec.restart.rules[0] says Fail)",
    ),
    "not an attempt that goes on": (at(forbidden, 2, 12_001, 12_003).decided(), "", "Running", "2 nodes running"),
    "a rule that comes later is for the next attempt": (
        over.settled().asks(restart=FORBIDDEN),
        "",
        "Running",
        "2 nodes running; training started over",
    ),
}


@rows(TABLE)
def test_starting_over(moment: Moment, expected: tuple[str, str, str]) -> None:
    assert verdict(moment) == expected


def said(moment: Moment) -> tuple[str, str, str] | None:
    condition = moment.settled().status.condition(ConditionType.STARTED_OVER)
    return (condition.status, condition.reason, condition.message) if condition else None


CONDITIONS: dict[str, tuple[Moment, tuple[str, str, str] | None]] = {
    "none of an attempt that goes on": (at(far, 2, 12_001, 12_003), None),
    "none of the next program in a held gang": (
        far.hears(attempt=2, progress={"attempt": 2, "firstStep": 1, "step": 3}, hold={"message": "held"}),
        None,
    ),
    "none of a suspended job that goes on": (
        at(far.suspended().asks(suspend=False).running(), 2, 12_401, 12_402),
        None,
    ),
    "of one that starts over": (over, ("True", "StartedOver", SAID)),
    "still, of the next one, of which nobody knows": (
        over.settled().hears(attempt=3, incidents=[killed(2)], progress={"attempt": 3, "stepsSinceRestart": 2}),
        ("True", "StartedOver", SAID),
    ),
    "not any more once one goes on": (
        at(over.settled(), 3, 4, 5),
        ("False", "WentOn", "The last attempt started where it was meant to start"),
    ),
    "nor once it is known better": (
        at(over.settled(), 2, 12_001, 12_050),
        ("False", "WentOn", "The last attempt started where it was meant to start"),
    ),
    "of a job that has ended since": (over.settled().succeeds(0, 1), ("True", "StartedOver", SAID)),
}


@pytest.mark.parametrize(("moment", "expected"), CONDITIONS.values(), ids=CONDITIONS)
def test_what_the_condition_says(moment: Moment, expected: tuple[str, str, str] | None) -> None:
    assert said(moment) == expected


def test_each_attempt_that_starts_over_is_an_event_though_it_ends_after_a_few_steps() -> None:
    again = at(over.settled(), 3, 1, 2).decided()
    told = [[(event.warning, event.reason) for event in moment.decision.events] for moment in (over, again)]
    assert told == [[(False, "Running"), (True, "StartedOver")]] * 2
    assert "12400 steps" in again.decided().condition(ConditionType.STARTED_OVER).message


def test_what_a_rank_told_as_it_failed_counts_too() -> None:
    early = at(a_job(nodes=2).running().hears().settled(), 1, 1, 90).settled()
    progress = {"attempt": 2, "firstStep": 1, "step": 3}
    anew = early.hears(attempt=2, incidents=[killed(1) | {"step": 120}], progress=progress).settled()
    assert "That loses 120 steps, and" in anew.condition(ConditionType.STARTED_OVER).message


def test_the_last_checkpoint_is_remembered_though_it_is_lost_with_its_pod() -> None:
    job = a_job(nodes=2, checkpoint={"path": "/out"}).running().hears().settled()
    first = job.hears(checkpoint={"step": 50}, progress={"attempt": 1, "firstStep": 1, "step": 60}).settled()
    anew = first.fails(1).restarted()
    assert anew.status.checkpoint is None
    condition = at(anew, 2, 1, 3, begins="NothingSaved").decided().condition(ConditionType.STARTED_OVER)
    assert "The checkpoint of step 50 was not loaded" in condition.message


def test_a_job_that_fails_by_such_a_rule_says_so_to_the_end() -> None:
    moment = at(forbidden, 2, 1, 3).decided().decided().gone().settled()
    status = moment.status
    assert (status.state, status.reason, status.restarts) == ("Failed", "StartedOver", 1)
    assert status.last_incident is not None
    found = status.last_incident
    assert (found.cause, found.attempt, found.action, found.rule, found.rank) == (
        *("StartedOver", 2, "Fail"),
        *("spec.restart.rules[0]", 0),
    )
    assert [one.cause for one in status.incidents] == ["StartedOver", "Application"]
    assert plan(moment) == ""
