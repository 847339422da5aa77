"""What supervisors report of a gang that runs: how far it has come, that it stands still, that nothing is heard."""

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from ddpjob_operator.api import Condition, ConditionType
from ddpjob_operator.engine import Settings
from ddpjob_operator.engine.supervision import awaits_first_report
from ddpjob_operator.engine.view import View

from .builders import START, Moment, a_job
from .tables import Table, rows, verdict

two = a_job(nodes=2).running()
gang = two.hears().settled()
STALL = {"since": "2026-01-01T12:00:00.000Z", "node": 1, "rank": 1, "message": "rank 1 is stopped (state T)"}
stands = gang.hears("Stalled", stall=STALL)
late = gang.hears(firstStepDelay={"message": "no step seen for 5 min; rank 0 is at train.py:3"})
frozen = gang.hears(stoppedRanks={"message": "rank 1 is stopped (SIGSTOP)"})
waits = gang.hears("Holding", hold={"message": "held: no program has run yet"})
later = {"message": "no step seen for 10 min; rank 0 is at train.py:9"}
answered = {"attempt": 1, "time": "2026-01-01T12:00:00Z", "node": 1, "cause": "Stalled", "message": "no step for 5 s"}
silent = gang.hears_nothing("10.0.1.0:29501 refuses connections")
SOME = {"epoch": 1, "step": 120, "totalSteps": 400, "percent": 30.04, "etaSeconds": 3930, "loss": 0.31}
SOME |= {"activity": "Evaluating", "activityTime": START.isoformat()}
diverges = gang.hears(progress=SOME | {"loss": "NaN", "lossNotFiniteSinceStep": 118})
trains = gang.hears(progress=SOME, checkpoint={"step": 100, "time": "2026-01-01T12:00:00Z"}, firstStepSeen=True)

LOST_LEADER = "Rank 0 failed: PeerLost: rank 0's supervisor has not answered the operator or the others for 60 s"
three = a_job(nodes=3).running().hears().settled().hears_nothing("refused").after(30)
comes_late = three.asks_another("Gathering").vanishes(2).decided(2)
unled = silent.after(30).settled().asks_another("Gathering")
STANDS = "Training has stalled: rank 1 is stopped (state T) (Kubernetes node node-1)"
LATE = "2 nodes running; no step seen for 5 min; rank 0 is at train.py:3"
TABLE: Table = {
    # late
    "a gang without a step goes on, and it is said where it is": (late, "", "Running", LATE),
    "also by an operator that was restarted": (late.settled().awaits_report(), "", "Running", LATE),
    "a rank that is stopped is named at once": (
        frozen,
        *("", "Running", "2 nodes running; rank 1 is stopped (SIGSTOP)"),
    ),
    "a gang that waits for programs says so": (
        waits,
        *("", "Running", "2 nodes running; held: no program has run yet"),
    ),
    "and which one runs": (
        waits.settled().hears(hold={"message": "held: train.py runs"}),
        *("", "Running", "2 nodes running; held: train.py runs"),
    ),
    "until it is continued": (frozen.settled().hears(), "", "Running", "2 nodes running"),
    "nothing is said of it by a supervisor that is silent": (
        frozen.settled().hears_nothing("10.0.1.0:29501 refuses connections").after(30),
        *("", "Running", "2 nodes running; 10.0.1.0:29501 refuses connections"),
    ),
    "until it has finished one": (late.settled().hears(), "", "Running", "2 nodes running"),
    "a supervisor that is silent knows it no longer": (
        late.settled().hears_nothing("refused").after(30),
        "",
        "Running",
        "2 nodes running; refused",
    ),
    # stalled
    "a gang that stands still is stalled, and its supervisors will see to it": (stands, "", "Stalled", STANDS),
    "until it goes on": (stands.settled().hears(), "", "Running", "2 nodes running"),
    "one whose supervisors blame nobody is stalled as well": (
        gang.hears("Stalled", stall={"message": ""}),
        "",
        "Stalled",
        "Training has stalled: the supervisors are looking for the reason",
    ),
    "what they do about it is a restart like any other": (
        stands.settled().hears("Gathering", attempt=2, incidents=[answered]),
        "",
        "Restarting",
        "Rank 1 failed: Stalled: no step for 5 s; restart 1 of 6, in place",
    ),
    "or the end of all pods": (
        stands.settled().reports(1, code=203, cause="Stalled", message="no step for 5 s").fails(0, code=204),
        "-1.0/5",
        "Restarting",
        "Rank 1 failed: Stalled: no step for 5 s (1 more rank failed with it); restart 1 of 6 in 0.9 s",
    ),
    "a stall that was answered is none any more": (
        stands.settled().fails(1).restarted().hears("Stalled", attempt=1, stall=STALL),
        "",
        "Running",
        "2 nodes running",
    ),
    "a job that comes to its end is not stalled": (
        stands.settled().asks(activeDeadlineSeconds=1).after(1).decided(),
        "",
        "Running",
        "Stopping 2 pods: The job was active for longer than 1 s (activeDeadlineSeconds)",
    ),
    "nor is one that is suspended": (
        stands.settled().asks(suspend=True),
        "-1.0/full -1.1/full",
        "Suspending",
        "Waiting for 2 pods to save and stop",
    ),
    "an operator that was restarted takes another one's word for it until it has heard": (
        stands.settled().awaits_report(),
        "",
        "Stalled",
        STANDS,
    ),
    "be it that its first question is not answered": (
        stands.settled().awaits_report().hears_nothing("refused").after(29),
        "",
        "Stalled",
        STANDS,
    ),
    "but not for ever": (
        stands.settled().awaits_report().hears_nothing("refused").after(30),
        "",
        "Running",
        "2 nodes running; refused",
    ),
    # unheard
    "for a moment, that is not worth a word": (silent.after(9), "", "Running", "2 nodes running"),
    "a supervisor that does not answer breaks nothing": (
        silent.after(29),
        "",
        "Running",
        "2 nodes running; 10.0.1.0:29501 refuses connections",
    ),
    "however long": (silent.after(1e6), "", "Running", "2 nodes running; 10.0.1.0:29501 refuses connections"),
    "and when it is heard again that is over": (
        silent.after(30).settled().hears(),
        "",
        "Running",
        "2 nodes running",
    ),
    "a program without supervisor is not asked for progress": (
        two.hears_nothing("10.0.1.0:29501 refuses connections").after(1e6),
        "",
        "Running",
        "2 nodes running",
    ),
    "a stall that was heard of long ago may be over": (
        stands.settled().hears_nothing("refused").after(30),
        "",
        "Running",
        "2 nodes running; refused",
    ),
    # a rank 0 that leads nobody any more
    "a silent rank 0 whose gang trains is let alone": (
        silent.after(30).settled().asks_another("Running").after(1e6),
        "",
        "Running",
        "2 nodes running; 10.0.1.0:29501 refuses connections",
    ),
    "one that leads nobody any more has its time": (
        unled.after(59).asks_another("Gathering"),
        "",
        "Running",
        "2 nodes running; 10.0.1.0:29501 refuses connections",
    ),
    "and is given up then": (
        unled.after(60).asks_another("Gathering"),
        "!1.0 -1.1/5",
        "Restarting",
        f"{LOST_LEADER}; restart 1 of 6 in 0.9 s",
    ),
    "unless its node turns out to be lost: then it alone is replaced": (
        unled.after(60).node_has("node-0", "is not ready: silent"),
        "-1.0/5",
        "Restarting",
        (
            "Rank 0 failed: NodeLost: Kubernetes node node-0 is not ready: silent; restart (not counted); "
            "replacing its pod"
        ),
    ),
    "the time starts over when the others have trained meanwhile": (
        unled.after(30).asks_another("Running").after(20).asks_another("Gathering").after(59),
        "",
        "Running",
        "2 nodes running; 10.0.1.0:29501 refuses connections",
    ),
    "who is heard again is not given up, whatever the others said": (
        unled.after(60).hears(),
        "",
        "Running",
        "2 nodes running",
    ),
    "nor on the word of one that does not answer either": (
        unled.another_is_silent().after(60),
        "",
        "Running",
        "2 nodes running; 10.0.1.0:29501 refuses connections",
    ),
    "nor while a pod is still to come for which all may wait": (
        comes_late.after(500),
        "",
        "Restarting",
        "2 of 3 pods running; rank 2: waiting to be scheduled",
    ),
    "nor before that one has had its time": (
        comes_late.after(500).runs(2).after(59),
        "",
        "Running",
        "3 nodes running; refused",
    ),
    # progress
    "that the loss is not a number any more is said beside it": (
        diverges,
        "",
        "Running",
        "2 nodes running; the loss has been NaN since step 118 or earlier",
    ),
    "with the step at which it was first read where the supervisor does not say since when": (
        gang.hears(progress={"step": 7, "loss": "Infinity"})
        .settled()
        .hears(progress={"step": 9, "loss": "-Infinity"}),
        "",
        "Running",
        "2 nodes running; the loss has been -Infinity since step 7 or earlier",
    ),
    "until it is one again": (diverges.settled().hears(progress=SOME), "", "Running", "2 nodes running"),
    "progress is no news": (trains, "", "Running", "2 nodes running"),
    "a gang that gathers says whom it waits for, and goes on being one that runs": (
        gang.hears("Gathering", missing=[1]),
        "",
        "Running",
        "Rank 0's supervisor is waiting for rank 1",
    ),
    "while a new job comes up its pods tell more than its supervisors": (
        a_job(nodes=2).created().runs(0).hears("Gathering", missing=[1]),
        "",
        "Starting",
        "1 of 2 pods running; rank 1: waiting to be scheduled",
    ),
}


@rows(TABLE)
def test_what_supervisors_report(moment: Moment, expected: tuple[str, str, str]) -> None:
    assert verdict(moment) == expected


def said(moment: Moment, kind: ConditionType) -> tuple[str, str] | None:
    condition: Condition | None = moment.settled().status.condition(kind)
    return (condition.status, condition.reason) if condition else None


UNKNOWN: dict[str, tuple[Moment, tuple[str, str] | None]] = {
    "while it is heard": (gang, None),
    "for half a minute of silence": (silent.after(29), None),
    "then": (silent.after(30), ("True", "SupervisorSilent")),
    "also to an operator that was restarted": (
        gang.awaits_report().hears_nothing("refused").after(30),
        ("True", "SupervisorSilent"),
    ),
    "still, to one that was restarted since": (
        silent.after(30).settled().awaits_report(),
        ("True", "SupervisorSilent"),
    ),
    "and whose first question is not answered": (
        silent.after(30).settled().awaits_report().hears_nothing("refused"),
        ("True", "SupervisorSilent"),
    ),
    "not of a new rank 0 that waits for the others": (
        gang.deleted_by_hand(0).decided().gone().decided().runs(0).hears("Gathering", missing=[1]).after(59),
        None,
    ),
    "not where there never was a supervisor": (two.hears_nothing("refused").after(1e6), None),
    "not any more when it is heard": (silent.after(30).settled().hears(), ("False", "SupervisorHeard")),
    "not once the job starts again": (silent.after(30).settled().fails(1), ("False", "SupervisorHeard")),
    "not where rank 0 has finished": (silent.after(30).succeeds(0), None),
    "not of a job that has finished": (silent.after(30).settled().succeeds(0, 1), ("False", "SupervisorHeard")),
}


@pytest.mark.parametrize(("moment", "expected"), UNKNOWN.values(), ids=UNKNOWN)
def test_when_progress_is_unknown(moment: Moment, expected: tuple[str, str] | None) -> None:
    assert said(moment, ConditionType.PROGRESS_UNKNOWN) == expected


AWAITING: dict[str, tuple[Moment, tuple[str, str] | None]] = {
    "not at first": (gang, None),
    "after minutes": (late, ("True", "NoStepSeen")),
    "still, after more of them": (late.settled().hears(firstStepDelay=later), ("True", "NoStepSeen")),
    "to an operator that was restarted": (late.settled().awaits_report(), ("True", "NoStepSeen")),
    "not any more after a step": (late.settled().hears(), ("False", "StepSeen")),
    "not once the job starts again": (late.settled().fails(1), ("False", "StepSeen")),
    "not of a job that has finished": (late.settled().succeeds(0, 1), ("False", "StepSeen")),
    "not by words that are none": (gang.hears(firstStepDelay={"message": 5}), None),
}


@pytest.mark.parametrize(("moment", "expected"), AWAITING.values(), ids=AWAITING)
def test_when_the_first_step_is_late(moment: Moment, expected: tuple[str, str] | None) -> None:
    assert said(moment, ConditionType.AWAITING_FIRST_STEP) == expected


def test_a_late_step_a_stall_silence_and_a_loss_that_is_none_are_warnings() -> None:
    moments = (late, stands, silent.after(30), diverges)
    told = [[(event.warning, event.reason) for event in moment.decision.events] for moment in moments]
    assert told[0] == [(True, "AwaitingFirstStep")]
    assert told[1:] == [[(True, "TrainingStalled")], [(True, "ProgressUnknown")], [(True, "LossNotFinite")]]


LOST: dict[str, tuple[Moment, tuple[str, str] | None]] = {
    "while it is a number": (trains, None),
    "nor of a program that tells none": (gang.hears(progress={"step": 3}), None),
    "when it is none": (diverges, ("True", "NotFinite")),
    "still, while nothing else is told": (diverges.settled().hears(progress={"step": 130}), ("True", "NotFinite")),
    "still, in the end": (diverges.settled().succeeds(0, 1), ("True", "NotFinite")),
    "not any more when it is one again": (diverges.settled().hears(progress=SOME), ("False", "Finite")),
}


@pytest.mark.parametrize(("moment", "expected"), LOST.values(), ids=LOST)
def test_when_the_loss_is_not_finite(moment: Moment, expected: tuple[str, str] | None) -> None:
    assert said(moment, ConditionType.LOSS_NOT_FINITE) == expected


def test_since_when_the_loss_is_not_finite_stays_as_it_was_read_first() -> None:
    later = diverges.settled().hears(progress=SOME | {"step": 300, "loss": "NaN", "lossNotFiniteSinceStep": 118})
    status = later.settled().status
    assert status.progress is not None
    assert (status.progress.loss, status.progress.loss_not_finite, status.progress.step) == (None, "NaN", 300)
    assert later.condition(ConditionType.LOSS_NOT_FINITE).message == "The loss has been NaN since step 118 or earlier"


OTHER_WORDS: dict[str, Moment] = {
    "of a late step": late.settled().hears(firstStepDelay=later),
    "of a stall": stands.settled().hears("Stalled", stall=STALL | {"message": "rank 1 waits for a disk"}),
    "of a loss": diverges.settled().hears(progress=SOME | {"loss": "Infinity"}),
    "of silence": silent.after(30).settled().hears_nothing("10.0.1.0:29501 does not answer"),
}


@pytest.mark.parametrize("moment", OTHER_WORDS.values(), ids=OTHER_WORDS)
def test_other_words_for_the_same_are_no_event_and_can_wait_to_be_written(moment: Moment) -> None:
    assert moment.decision.status is not None
    assert (moment.decision.events, moment.decision.can_wait) == ((), True)


def test_where_there_is_no_kubernetes_a_stall_names_a_machine() -> None:
    here = stands.but(settings=Settings(noun="node", host="machine"))
    assert here.decided().status.message == STANDS.replace("Kubernetes node", "machine")


def test_a_second_stall_is_another_event() -> None:
    again = stands.settled().hears().settled().hears("Stalled", stall=STALL)
    assert [event.reason for event in again.decision.events] == ["TrainingStalled"]


def test_the_silence_is_told_in_the_words_of_who_asked() -> None:
    condition = silent.after(30).settled().condition(ConditionType.PROGRESS_UNKNOWN)
    assert condition.message == "10.0.1.0:29501 refuses connections"


def test_what_was_heard_is_in_the_status() -> None:
    progress, seen = trains.decided().status.progress, trains.decided().status.checkpoint
    display = trains.decided().status.display
    assert progress is not None
    assert seen is not None
    assert (progress.epoch, progress.step, progress.total_steps, progress.loss) == (1, 120, 400, 0.31)
    assert (progress.percent, display.progress) == (30.0, "30%")
    assert (progress.eta_seconds, display.eta) == (3930, "1h5m")
    assert (progress.activity, progress.activity_time) == ("Evaluating", START)
    assert (seen.step, seen.time) == (100, START)


def test_a_job_whose_length_nobody_knows_shows_its_step() -> None:
    display = gang.hears(progress={"step": 120}).decided().status.display
    assert (display.progress, display.eta) == ("step 120", "")


def test_a_job_of_which_nobody_knows_where_it_went_on_shows_what_it_has_done_since() -> None:
    """It neither looks as if work was lost nor claims what was perhaps done anew."""
    counted = gang.hears(progress={"step": 5000}).settled()
    progress = counted.hears(attempt=2, incidents=[answered], progress={"stepsSinceRestart": 12}).decided()
    shown = progress.status.progress
    assert shown is not None
    assert (shown.step, shown.steps_since_restart) == (None, 12)
    assert progress.status.display.progress == "12 steps since restart"


ENDS: dict[str, Moment] = {
    "suspended": trains.settled().suspended(),
    "restarted": trains.settled().fails(1).decided(),
    "restarted in place": trains.settled().hears(attempt=2, incidents=[answered], progress=SOME).decided(),
    "finished": trains.settled().succeeds(0, 1).settled(),
}


@pytest.mark.parametrize("moment", ENDS.values(), ids=ENDS)
def test_a_gang_that_does_not_run_keeps_its_progress_and_has_no_end_in_sight(moment: Moment) -> None:
    progress = moment.status.progress
    assert progress is not None
    assert (progress.step, progress.percent) == (120, 30.0)
    assert (progress.eta_seconds, moment.status.display.eta) == (None, "")
    assert (progress.activity, progress.activity_time) == (None, None)


def test_what_is_not_reported_any_more_stays_as_it_was() -> None:
    status = trains.settled().hears().settled().status
    assert status.progress == trains.settled().status.progress
    assert status.checkpoint == trains.settled().status.checkpoint


SAVED = {"checkpoint": {"step": 100}}
EMPTY = {"path": "/out"}
CLAIM = {"path": "/out", "volume": {"persistentVolumeClaim": {"claimName": "out"}}}


@pytest.mark.parametrize(
    ("checkpoint", "step"), [(EMPTY, None), (CLAIM, 100), (None, 100)], ids=["in the pod", "on a claim", "who knows"]
)
def test_a_checkpoint_that_went_with_its_pod_is_not_shown(checkpoint: Any, step: int | None) -> None:
    saved = a_job(nodes=2, checkpoint=checkpoint).running().hears(**SAVED).settled()
    in_place = saved.hears(attempt=2, incidents=[answered]).decided()
    anew = saved.suspended(), saved.fails(0).settled()
    seen = [moment.status.checkpoint for moment in (saved, in_place, *anew)]
    assert [one and one.step for one in seen] == [100, 100, step, step]


def test_stragglers_are_named_with_their_nodes_as_long_as_the_gang_runs() -> None:
    slow = gang.hears(stragglers=[{"node": 1, "rank": 1, "slowdown": 1.84}]).settled()
    assert [(one.node, one.node_name, one.slowdown) for one in slow.status.stragglers] == [(1, "node-1", 1.8)]
    assert slow.hears().settled().status.stragglers == ()
    assert slow.fails(0).settled().status.stragglers == ()
    assert slow.awaits_report().settled().status.stragglers != ()


WAITS: dict[str, tuple[Moment, bool]] = {
    "progress can": (trains, True),
    "stragglers can": (gang.hears(stragglers=[{"node": 1, "slowdown": 2.0}]), True),
    "that there is a supervisor can": (two.hears(), True),
    "a stall cannot": (stands, False),
    "nor a loss that is not finite any more": (diverges, False),
    "nor its end": (stands.settled().hears(progress=SOME), False),
    "an incident cannot": (gang.hears(attempt=2, incidents=[answered], progress=SOME), False),
    "nor an attempt": (gang.hears(attempt=2, progress=SOME), False),
    "nor that nothing is heard": (silent.after(30), False),
}


@pytest.mark.parametrize(("moment", "can_wait"), WAITS.values(), ids=WAITS)
def test_what_can_wait_to_be_written(moment: Moment, can_wait: bool) -> None:  # noqa: FBT001  a table's column
    assert moment.decision.status is not None
    assert moment.decision.can_wait is can_wait


def test_another_one_is_asked_only_while_rank_0_is_silent() -> None:
    other = silent.after(30).asked.answered.witness
    assert other is not None
    assert (other.pod, other.address) == (two.pods[1].name, "10.0.1.1")
    for quiet in (
        silent.after(29),
        silent.after(30).hears(),
        silent.after(30).fails(1),
        two.hears_nothing("no").after(30),
    ):
        assert quiet.asked.answered.witness is None


def test_the_next_look_is_when_rank_0_is_to_be_given_up() -> None:
    assert unled.decision.wake_at == unled.snapshot.now + timedelta(seconds=60)


ASKED: dict[str, tuple[Moment, frozenset[str]]] = {
    "none as long as nobody is missed": (gang, frozenset()),
    "none for a while": (gang.hears("Gathering", missing=[1]).after(59), frozenset()),
    "then that of the rank that is": (gang.hears("Gathering", missing=[1]).after(60), frozenset({"node-1"})),
}


@pytest.mark.parametrize(("moment", "nodes"), ASKED.values(), ids=ASKED)
def test_which_nodes_are_asked_about(moment: Moment, nodes: frozenset[str]) -> None:

    assert moment.asked.answered.node_names == nodes


def whom(moment: Moment) -> Any:

    return moment.asked.answered.supervisor


def test_rank_0s_present_pod_is_asked_as_long_as_it_runs() -> None:
    asked = whom(a_job(nodes=2, network={"statusPort": 12345}).running())
    assert (asked.pod, asked.address, asked.port) == (two.pods[0].name, "10.0.1.0", 12345)
    assert whom(a_job(nodes=2).created()) is None
    assert whom(two.succeeds(0)) is None
    again = gang.deleted_by_hand(0).decided().gone().decided()
    assert whom(again) is None
    assert whom(again.runs(0)).address == "10.0.2.0"


def test_the_next_looks_are_when_a_silence_has_lasted() -> None:
    assert silent.decision.wake_at == silent.snapshot.now + timedelta(seconds=10)
    assert silent.after(10).decided().decision.wake_at == silent.snapshot.now + timedelta(seconds=30)


UNHEARD: dict[str, tuple[Moment, str]] = {
    "one of two, which may just come late": (gang.hears("Gathering", missing=[1]).after(9), "2/2"),
    "one of two, which the other one misses": (gang.hears("Gathering", missing=[1]).after(10), "1/2"),
    "rank 0, for a moment": (silent.after(9), "2/2"),
    "rank 0": (silent.after(10), "1/2"),
    "none any more": (silent.after(10).settled().hears(), "2/2"),
}


@pytest.mark.parametrize(("moment", "ready"), UNHEARD.values(), ids=UNHEARD)
def test_whose_supervisor_is_not_heard_is_not_counted_though_its_pod_still_seems_to_run(
    moment: Moment, ready: str
) -> None:
    """Its node may be lost: Kubernetes takes 50 s to find that out."""
    status = moment.settled().status
    assert (status.display.ready, status.state) == (ready, "Running")


LAST = {"progress": {"step": 400, "totalSteps": 400, "percent": 100.0}, "checkpoint": {"step": 400}}


@pytest.mark.parametrize("code", [0, 205])
def test_how_far_training_came_is_what_rank_0_left_when_it_ended(code: int) -> None:
    """Its page was read some seconds before, at step 388."""
    report = a_job(nodes=2).running().hears(progress={"step": 388, "totalSteps": 400, "percent": 97.0}).settled()
    spec = {} if code == 0 else {"suspend": True}
    ended = report.asks(**spec).fails(0, code=code, message=json.dumps(LAST)).fails(1, code=code).decided()
    seen, saved = ended.status.progress, ended.status.checkpoint
    assert seen is not None
    assert saved is not None
    assert (seen.step, ended.status.display.progress, saved.step) == (400, "100%", 400)
    assert ended.gone().settled().status.progress == seen, "and it stays"


def test_a_failed_job_shows_the_last_step_that_rank_0_left_with_its_failure_report() -> None:
    report = a_job(nodes=1, restart={"maxRestarts": 0}).running().hears(progress={"step": 388}).settled()
    failed = report.fails(0, code=1, message=json.dumps(LAST | {"cause": "Application", "step": 400})).settled()
    assert failed.status.state == "Failed"
    assert failed.status.progress is not None
    assert failed.status.progress.step == 400


@pytest.mark.parametrize("words", ["done", "[]", "{}", '{"progress": 7, "checkpoint": []}'])
def test_where_a_program_leaves_something_else_what_was_heard_last_stays(words: str) -> None:
    report = a_job(nodes=1).running().hears(progress={"step": 388}).settled()
    seen = report.fails(0, code=0, message=words).settled().status.progress
    assert seen is not None
    assert seen.step == 388


@pytest.mark.parametrize(("stopped", "awaits"), [(None, True), (1, True), (0, False)])
def test_a_new_operator_awaits_the_first_report_of_rank_0s_pod_as_long_as_that_runs(
    stopped: int | None, *, awaits: bool
) -> None:
    known = a_job(nodes=2).running().hears().settled().snapshot
    pods = tuple(replace(pod, running=pod.node != stopped) for pod in known.pods)
    assert awaits_first_report(View(replace(known, report=None, pods=pods))) is awaits


def test_an_operator_that_has_heard_nothing_believes_what_rank_0_left_without_a_checkpoint() -> None:
    known = a_job(nodes=1).running().hears(progress={"step": 388}).settled()
    ended = known.awaits_report().fails(0, code=0, message='{"progress": {"step": 400}}')
    seen = ended.settled().status
    assert (seen.progress and seen.progress.step, seen.checkpoint) == (400, None)
