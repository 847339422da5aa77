"""What a change of a job's status adds to the metrics, and how a job spends its time."""

from dataclasses import asdict, replace
from datetime import timedelta
from typing import Any

import pytest
from ddpjob_operator.api import Cause, ConditionType, State
from ddpjob_operator.engine import FREE_CAUSES, Counts, Standing, StartPart, TimeKind, counted, standing
from ddpjob_operator.engine.accounting import KINDS, STEPS_PER_SECOND

from .builders import START, Moment, a_job

GPUS = {
    "spec": {"containers": [{"name": "trainer", "image": "any", "resources": {"limits": {"nvidia.com/gpu": "8"}}}]}
}
SUPERVISED = {"spec": {"containers": [{"name": "trainer", "image": "any", "command": ["ddpjob-supervise", "x.py"]}]}}


def at(step: int, *, attempt: int = 1, first: int = 1, since: float = 0, **progress: Any) -> dict[str, Any]:
    """What a supervisor says of an attempt that has finished this step, the first of them so many seconds ago."""
    begun = (START + timedelta(seconds=since)).isoformat()
    return {"attempt": attempt, "step": step, "firstStep": first, "since": begun, **progress}


TRAINS = a_job(nodes=2).running().hears(progress=at(5)).settled()
FAILED = TRAINS.fails(1).settled()
AGAIN = FAILED.restarted()

TABLE: dict[str, tuple[Moment, TimeKind | None]] = {
    "a new job has nothing": (a_job(nodes=2), None),
    "its pods wait for Kubernetes nodes": (a_job(nodes=2).created(), None),
    "half of a gang does not start": (a_job(nodes=2).created().placed(0).settled(), None),
    "images are pulled": (a_job(nodes=2).created().placed(0, 1).settled(), TimeKind.ACCELERATOR_INITIALIZATION),
    "a supervisor has seen no step": (a_job(nodes=2, template=SUPERVISED).running(), TimeKind.PROGRAM_STARTUP),
    "it is held and runs no program": (
        a_job(nodes=2, template=SUPERVISED).running().hears("Holding", hold={"message": "held"}).settled(),
        TimeKind.OTHER,
    ),
    "nobody counts steps": (a_job(nodes=2).running(), TimeKind.OTHER),
    "the first step is late": (
        a_job(nodes=2).running().hears(firstStepDelay={"message": "no step"}).settled(),
        TimeKind.OTHER,
    ),
    "it trains": (TRAINS, TimeKind.GOODPUT),
    "an old supervisor names no attempt": (
        a_job(nodes=2).running().hears(progress={"step": 5}).settled(),
        TimeKind.GOODPUT,
    ),
    "steps are only counted": (
        a_job(nodes=2).running().hears(progress={"attempt": 1, "stepsSinceRestart": 5}).settled(),
        TimeKind.GOODPUT,
    ),
    "it evaluates": (TRAINS.hears(progress=at(6, activity="Evaluating")).settled(), TimeKind.EVALUATION),
    "it saves": (TRAINS.hears(progress=at(6, activity="Saving")).settled(), TimeKind.CHECKPOINT_SAVE),
    "it stalls": (TRAINS.hears("Stalled", stall={"node": 1}).settled(), TimeKind.STALLED),
    "a rank has failed": (FAILED, TimeKind.INFRASTRUCTURE_RECOVERY),
    "it waits for the next attempt": (FAILED.ready_again().settled(), TimeKind.INFRASTRUCTURE_RECOVERY),
    "the next attempt has made no step": (AGAIN.hears(progress=at(5)).settled(), TimeKind.PROGRAM_STARTUP),
    "it repeats steps": (AGAIN.hears(progress=at(4, attempt=2, first=3)).settled(), TimeKind.WASTED_PROGRESS),
    "it is as far as before": (AGAIN.hears(progress=at(5, attempt=2, first=3)).settled(), TimeKind.GOODPUT),
    "it counts each epoch's steps anew": (
        AGAIN.hears(progress=at(4, attempt=2, first=3, recounts=True)).settled(),
        TimeKind.GOODPUT,
    ),
    "it saves because it is suspended": (TRAINS.asks(suspend=True).settled(), TimeKind.OTHER),
    "it is suspended": (TRAINS.suspended(), None),
    "it has succeeded": (TRAINS.succeeds(0, 1).settled(), None),
}


@pytest.mark.parametrize("sentence", TABLE)
def test_a_job_spends_its_time(sentence: str) -> None:
    moment, kind = TABLE[sentence]
    assert standing(moment.snapshot, moment.status).kind is kind


def test_a_state_without_kubernetes_nodes_takes_no_time() -> None:
    idle = {State.PENDING, State.QUEUED, State.SUSPENDED, State.SUCCEEDED, State.FAILED}
    assert {*KINDS, State.RUNNING} | idle == {*State}
    newer = TRAINS.status.model_copy(update={"state": "Migrating"})
    assert standing(TRAINS.snapshot, newer).kind is None


def test_gpus_count_while_pods_hold_them() -> None:
    moment = a_job(nodes=2, template=GPUS).running()
    assert standing(moment.snapshot, moment.status).gpus == 16
    lost = moment.fails(1).settled()
    assert standing(lost.snapshot, lost.status).gpus == 8, "of the pod that still runs"


def test_ages_begin_when_all_pods_run_and_again_with_each_step_and_checkpoint() -> None:
    job = a_job(nodes=2, checkpoint={"path": "/x"}).after(10).running()
    assert standing(job.snapshot, job.status).step_since is None, "it may never report a step"
    assert standing(job.snapshot, job.status).saved_since == job.snapshot.now
    saved, stepped = (job.snapshot.now + timedelta(seconds=seconds) for seconds in (20, 30))
    later = job.after(60).hears(
        progress=at(5, since=11, lastStepTime=stepped.isoformat()), checkpoint={"step": 4, "time": saved.isoformat()}
    )
    found = standing(later.settled().snapshot, later.settled().status)
    assert (found.step_since, found.saved_since) == (stepped, saved)


def test_the_age_of_a_step_begins_again_with_an_attempt() -> None:
    trains = a_job(nodes=2).running().hears(progress=at(5, lastStepTime=START.isoformat())).settled()
    again = trains.after(60).fails(1).settled().restarted()
    assert standing(again.snapshot, again.status).step_since == again.snapshot.now


def test_the_age_of_a_checkpoint_does_not_count_what_a_suspension_took() -> None:
    saved = {"step": 4, "time": START.isoformat()}
    resumed = TRAINS.hears(progress=at(5), checkpoint=saved).settled().suspended().after(9000)
    running = resumed.asks(suspend=False).running()
    assert standing(running.snapshot, running.status).saved_since == running.snapshot.now


def test_no_age_is_told_of_what_a_job_does_not_do() -> None:
    moment = a_job(nodes=2).running()
    found = standing(moment.snapshot, moment.status)
    assert (found.step_since, found.saved_since) == (None, None)


def change(before: Moment, after: Moment) -> Counts:
    return counted(before.snapshot, after.status)


def test_a_restart_is_counted_by_its_cause_and_a_disruption_beside_it() -> None:
    assert change(TRAINS, FAILED) == Counts(restart=Cause.APPLICATION)
    taken = TRAINS.deleted_by_hand(1).gone().settled()
    assert change(TRAINS, taken) == Counts(disruption=Cause.POD_DELETED)
    assert change(FAILED, AGAIN).restart == ""


def test_a_restart_that_turns_out_to_be_free_is_a_disruption_too() -> None:
    status = FAILED.status
    (incident,) = status.incidents
    lost = incident.model_copy(update={"cause": Cause.NODE_LOST})
    free = status.model_copy(update={"restarts": 0, "disruptions": 1, "incidents": (lost,)})
    assert counted(FAILED.snapshot, free) == Counts(disruption=Cause.NODE_LOST)


def test_free_causes_are_those_of_disruptions() -> None:
    assert {Cause.NODE_LOST, Cause.PREEMPTED, Cause.DEVICE_FAILED} < {*FREE_CAUSES}
    assert Cause.APPLICATION not in FREE_CAUSES


def test_the_end_is_counted_once() -> None:
    over = TRAINS.succeeds(0, 1).settled()
    assert change(TRAINS, over).finished == State.SUCCEEDED
    assert change(over, over).finished == ""
    never = a_job(nodes=2, restart={"maxRestarts": 0}).running()
    assert change(never, never.fails(0).settled().gone().settled()).finished == State.FAILED


@pytest.mark.parametrize(
    ("before", "after", "counts"),
    [
        (None, at(5), (5, 0)),
        (None, at(105, first=101), (5, 0)),
        (at(5), at(9), (4, 0)),
        (at(9), at(9), (0, 0)),
        (at(9), at(7, attempt=2, first=5), (3, 3)),
        (at(9), at(12, attempt=2, first=5), (8, 5)),
        (at(9), at(12, attempt=2, first=10), (3, 0)),
        (at(9), at(12, attempt=2, first=11), (2, 0)),
        (at(9), at(3, recounts=True), (0, 0)),
        (at(9), at(3, attempt=2, recounts=True), (3, 0)),
        (None, {"attempt": 1, "step": 7}, (0, 0)),
        (None, {"attempt": 1, "stepsSinceRestart": 7}, (7, 0)),
        ({"attempt": 1, "stepsSinceRestart": 7}, {"attempt": 1, "stepsSinceRestart": 9}, (2, 0)),
        ({"attempt": 1, "stepsSinceRestart": 7}, {"attempt": 2, "stepsSinceRestart": 3}, (3, 0)),
    ],
)
def test_steps_are_counted_and_those_again_that_were_lost(
    before: dict[str, Any] | None, after: dict[str, Any], counts: tuple[int, int]
) -> None:
    job = a_job(nodes=2).running()
    moment = job.hears(progress=before).settled() if before else job
    found = change(moment, moment.hears(progress=after, attempt=after["attempt"]).settled())
    assert (found.steps, found.repeated_steps) == counts


def test_steps_are_counted_in_full_however_often_the_status_is_written() -> None:
    moment, steps, repeated = a_job(nodes=2).running(), 0, 0
    lives = [(1, 1, range(1, 31, 7)), (2, 20, range(22, 41, 3)), (3, 37, range(38, 51))]
    for attempt, first, seen in lives:
        for step in seen:
            then = moment.hears(progress=at(step, attempt=attempt, first=first), attempt=attempt).settled()
            found = change(moment, then)
            moment, steps, repeated = then, steps + found.steps, repeated + found.repeated_steps
    # 29 steps, then 20 to 40, of which 29 and before were there; then 37 to 50, of which 40 and before were.
    assert (steps, repeated) == (29 + 21 + 14, 10 + 4)
    assert steps - repeated == 50


@pytest.mark.parametrize("step", [STEPS_PER_SECOND + 1, 2**53])
def test_a_report_adds_no_more_steps_than_can_be_made_since_the_last_one(step: int) -> None:
    """A supervisor's figures are a stranger's, but sums over all jobs contain them."""
    moment = a_job(nodes=2).running().hears(progress=at(5)).settled()
    for seconds in (60, 10):
        then = moment.after(seconds).hears(progress=at(step)).settled()
        assert 0 < change(moment, then).steps <= STEPS_PER_SECOND * (seconds + 1)
        moment = moment.after(seconds).hears(progress=at(0)).settled()
    again = then.after(10).hears(progress=at(step, attempt=2, first=1), attempt=2).settled()
    found = change(then, again)
    assert found.repeated_steps <= found.steps <= STEPS_PER_SECOND * 11
    first = a_job(nodes=2).running()
    assert change(first, first.hears(progress=at(step)).settled()).steps <= STEPS_PER_SECOND * 61


def test_a_start_has_parts_that_follow_one_another() -> None:
    job = a_job(nodes=2)
    created = START - timedelta(seconds=3)
    starts = [*counted(job.snapshot, job.decision.status or job.status, created).starts]
    placed = job.created().after(7).placed(0, 1).settled()
    runs = placed.after(40).runs(0, 1)
    starts += counted(runs.snapshot, runs.settled().status, created).starts
    running = runs.settled()
    stepped = running.after(30).hears(began=-20, progress=at(1, since=7 + 40 + 25))
    starts += counted(stepped.snapshot, stepped.settled().status, created).starts
    assert starts == [
        (StartPart.QUEUED, 3),
        (StartPart.SCHEDULED, 7),
        (StartPart.PULLED, 40),
        (StartPart.MET, 10),
        (StartPart.FIRST_STEP, 15),
    ]
    later = stepped.settled().after(10).hears(progress=at(9, since=72))
    assert counted(later.snapshot, later.settled().status, created).starts == ()


def test_a_restart_is_no_start() -> None:
    assert counted(TRAINS.snapshot, FAILED.status, START).starts == ()
    assert counted(FAILED.snapshot, AGAIN.status, START).starts == ()
    step = AGAIN.after(9).hears(progress=at(6, attempt=2, first=6, since=99))
    assert counted(step.snapshot, step.settled().status).starts == ()


def test_a_job_that_was_suspended_has_no_time_in_a_queue() -> None:
    waiting = a_job(nodes=2, suspend=True).settled().after(500).asks(suspend=False)
    assert counted(waiting.snapshot, waiting.settled().status, START).starts == ()


def test_a_job_without_an_image_waits_for_it_after_the_queue() -> None:
    nameless = a_job(nodes=2).nameless().after(5)
    blocked = nameless.settled()
    named = blocked.after(600).with_image()
    starts = counted(named.snapshot, named.settled().status, START).starts
    assert (*counted(nameless.snapshot, blocked.status, START).starts, *starts) == ((StartPart.QUEUED, 5),)
    runs = named.settled().runs(0, 1)
    assert (StartPart.SCHEDULED, 600) in counted(runs.snapshot, runs.settled().status).starts


def test_a_job_that_has_run_did_not_wait_since_its_creation() -> None:
    undone = TRAINS.asks(suspend=True).settled().after(9000).asks(suspend=False)
    assert undone.decision.status is not None
    assert undone.decision.status.start_time == undone.snapshot.now
    assert counted(undone.snapshot, undone.decision.status, START).starts == ()
    evicted = a_job(nodes=2).queues().settled().admitted().running().evicted("Preempted", "").settled().gone()
    free = evicted.settled().after(90).without_queue()
    assert counted(free.snapshot, free.settled().status, START).starts == ((StartPart.QUEUED, 90),)


def test_a_resumption_is_a_start_whose_first_step_is_a_new_one() -> None:
    resumed = TRAINS.suspended().after(9000).asks(suspend=False).settled().after(5).runs(0, 1).hears(attempt=2)
    runs = counted(resumed.snapshot, resumed.settled().status)
    assert [part for part, _ in runs.starts] == [StartPart.SCHEDULED, StartPart.PULLED]
    stepped = resumed.settled().after(20).hears(began=-10, progress=at(6, attempt=2, first=6, since=9020))
    parts = dict(counted(stepped.snapshot, stepped.settled().status).starts)
    assert parts == {StartPart.MET: 10, StartPart.FIRST_STEP: 5}


def test_nobody_says_when_supervisors_met_that_have_parted_since() -> None:
    job = a_job(nodes=2).after(1).running()
    gathers = job.after(20).hears("Gathering", attempt=2, progress=at(1, since=9))
    assert counted(gathers.snapshot, gathers.settled().status).starts == ()


def test_a_queue_counts_from_the_moment_in_which_the_job_entered_it() -> None:
    queued = a_job(nodes=2).queues().settled().after(90).admitted()
    found = counted(queued.snapshot, queued.settled().status, START - timedelta(seconds=3600))
    assert found.starts == ((StartPart.QUEUED, 90),)


def test_clocks_that_differ_give_no_negative_times() -> None:
    job = a_job(nodes=2).created().after(5)
    ahead = job.but(now=job.snapshot.now + timedelta(seconds=60)).placed(0, 1).but(now=job.snapshot.now)
    runs = ahead.runs(0, 1)
    parts = dict(counted(runs.snapshot, runs.settled().status).starts)
    assert parts == {StartPart.SCHEDULED: 5, StartPart.PULLED: 0}
    behind = job.but(now=START - timedelta(seconds=1)).placed(0, 1).but(now=job.snapshot.now).runs(0, 1)
    assert dict(counted(behind.snapshot, behind.settled().status).starts)[StartPart.SCHEDULED] == 0
    early = runs.settled().hears(began=-90, progress=at(1, since=5))
    assert dict(counted(early.snapshot, early.settled().status).starts) == {
        StartPart.MET: 0,
        StartPart.FIRST_STEP: 0,
    }


def test_what_a_job_changes_of_itself_alone_counts_nothing() -> None:
    same = replace(TRAINS.snapshot, now=TRAINS.snapshot.now + timedelta(seconds=5))
    assert counted(same, TRAINS.status) == Counts()


def found(moment: Moment) -> Standing:
    return standing(moment.snapshot, moment.status, START)


SUSPENDED = TRAINS.after(60).suspended().after(600)
RESUMED = SUSPENDED.asks(suspend=False).settled()

WAITS: dict[str, tuple[Moment, float | None]] = {
    "a new job": (a_job(nodes=2).after(5), 0),
    "in its queue": (a_job(nodes=2).queues().waits_in_queue("Pending", "no quota").settled().after(9), 0),
    "its pods are pending": (a_job(nodes=2).created().after(100).settled(), 0),
    "it has run": (TRAINS.after(500), None),
    "it restarts": (TRAINS.after(500).fails(1).settled().after(70), 500),
    "it is suspended": (SUSPENDED, None),
    "it is resumed": (RESUMED.after(40), 660),
    "it has finished": (TRAINS.succeeds(0, 1).settled(), None),
}


@pytest.mark.parametrize("sentence", WAITS)
def test_a_job_waits_since_it_was_created_or_resumed_or_last_ran(sentence: str) -> None:
    moment, seconds = WAITS[sentence]
    assert found(moment).waits_since == (None if seconds is None else START + timedelta(seconds=seconds))


def test_the_share_of_the_restart_budget_counts_until_the_budget_is_restored() -> None:
    spec: dict[str, Any] = {"nodes": 2, "restart": {"maxRestarts": 4, "windowSeconds": 600}}
    failed = a_job(**spec).running().fails(1).settled()
    assert (found(failed).budget_used, found(failed).budget_restored) == (0.25, None)
    again = failed.restarted()
    runs = again.condition(ConditionType.RUNNING).last_transition_time
    assert (found(again).budget_used, found(again).budget_restored) == (0.25, runs + timedelta(seconds=600))
    stands = again.hears(progress=at(5, lastStepTime=START.isoformat())).settled()
    assert found(stands).budget_restored is None, "no step has finished since all ranks run"
    assert found(a_job(nodes=2).running()).budget_used == 0
    over = a_job(nodes=2, restart={"maxRestarts": 0}).running().fails(0).settled().gone().settled()
    assert found(over) == Standing(), "a finished job has no budget"


def test_a_job_has_diverged_while_its_loss_is_not_finite_and_when_it_has_failed_for_that() -> None:
    lost = TRAINS.hears(progress=at(6, loss="NaN")).settled()
    assert found(lost).diverged
    assert not found(lost.suspended()).diverged, "somebody has acted"
    assert not found(lost.hears(progress=at(7, loss=0.5)).settled()).diverged
    failed = TRAINS.after(30).reports(1, cause="Diverged").settled().gone().settled()
    assert found(failed) == Standing(diverged=True, ended=failed.snapshot.now)
    other = a_job(nodes=2, restart={"maxRestarts": 0}).running().fails(0).settled().gone().settled()
    assert not found(other).diverged
    assert not found(TRAINS.succeeds(0, 1).settled()).diverged


def test_a_job_has_stalled_until_it_starts_again_and_when_it_has_failed_for_that() -> None:
    hangs = TRAINS.hears("Stalled", stall={"node": 1}).settled()
    assert found(hangs).stalled
    assert not found(TRAINS).stalled
    last = a_job(nodes=2, restart={"maxRestarts": 0}).running().reports(1, cause="Stalled").settled().gone().settled()
    assert found(last) == Standing(stalled=True, ended=last.snapshot.now)


def test_of_a_job_that_does_nothing_nothing_is_counted() -> None:
    """The tables above compare with the same defaults."""
    nothing = asdict(Standing()) | asdict(Counts())
    assert not any(nothing.values()), nothing
